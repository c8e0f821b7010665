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
