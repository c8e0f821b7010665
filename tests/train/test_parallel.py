"""Gradients are the same bits in every step of every process's life."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Linear, Module, TransformerEncoderLayer

from footplate.train.parallel import distributed, unwrapped

if TYPE_CHECKING:
    from tests.train.conftest import Ranks

    from footplate.train.group import RankGroup


def gradients_of_two_passes(group: RankGroup) -> tuple[list[Tensor], list[Tensor]]:
    """The averaged gradients of one input, in the first and in the second pass after a start."""
    torch.manual_seed(0)
    layer = TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    model = distributed(layer, torch.device("cpu"))
    torch.manual_seed(group.rank)
    samples = torch.randn(4, 16, 32)

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(samples).square().mean().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    return gradients(), gradients()


def state_after_wrapping(_: RankGroup) -> tuple[bool, bool, bool]:
    """What wrapping leaves: no gradients, the model's own forward, the same random numbers."""
    layer = Linear(4, 4)
    before = torch.get_rng_state()
    model = distributed(layer, torch.device("cpu"))
    return (
        all(parameter.grad is None for parameter in model.parameters()),
        "forward" not in vars(layer) and unwrapped(model) is layer,
        torch.equal(before, torch.get_rng_state()),
    )


def test_first_pass_equals_later_ones(ranks: Ranks) -> None:
    """From three ranks on, torch alone sums in another order in the first pass after a start."""
    for first, second in ranks.run(gradients_of_two_passes):
        assert len(first) == len(second) > 0
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_wrapping_leaves_no_trace(ranks: Ranks) -> None:
    """The pass that settles the buckets is not seen by the training code."""
    assert ranks.run(state_after_wrapping) == [(True, True, True)] * ranks.world_size


def test_unwrapped_model_is_itself() -> None:
    """Without DDP there is nothing to unwrap."""
    model: Module = Linear(1, 1)
    assert unwrapped(model) is model


def models_of_every_kind(_: RankGroup) -> list[bool]:
    """Whether models that DDP takes still compute what they are meant to, once wrapped."""
    torch.manual_seed(0)
    patched = Linear(2, 2)
    setattr(patched, "forward", lambda samples: samples * 3)  # noqa: B010 - hides a method
    hooked = Linear(2, 2)
    hooked.register_forward_pre_hook(lambda _, inputs: (inputs[0] + 1,))
    complex_numbers = Linear(2, 2, dtype=torch.complex64)
    compiled: Module = torch.compile(Linear(2, 2))  # type: ignore[assignment]
    samples = torch.ones(1, 2)
    expected = hooked(samples)
    models = [distributed(m, torch.device("cpu")) for m in (patched, hooked, complex_numbers)]
    unwrapped(distributed(compiled, torch.device("cpu")))  # wrapping does not compile anything
    return [
        torch.equal(models[0](samples), samples * 3),
        torch.equal(models[1](samples), expected),
        models[2](samples.to(torch.complex64)).is_complex(),
    ]


def test_wrapping_touches_no_code_of_the_model(ranks: Ranks) -> None:
    """A patched forward, hooks, complex parameters and compiled models stay as they are."""
    assert ranks.run(models_of_every_kind) == [[True, True, True]] * ranks.world_size
