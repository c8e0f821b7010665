"""Gradients are the same bits in every step of every process's life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import (
    BatchNorm1d,
    Embedding,
    Linear,
    Module,
    ModuleDict,
    ModuleList,
    ReLU,
    Sequential,
    TransformerEncoder,
    TransformerEncoderLayer,
)

from footplate.errors import UserCodeError
from footplate.train.parallel import averaging, blocks, distributed, sharded, unwrapped

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


def names_when_compiled(_: RankGroup) -> list[tuple[list[str], bool]]:
    """What the state of a compiled model consists of, and whether it is known to be averaged."""
    layer, device = Linear(2, 2), torch.device("cpu")
    before: Any = torch.compile(layer)
    after: Any = torch.compile(distributed(Linear(2, 2), device))
    models = [before, distributed(before, device), after]
    return [(list(unwrapped(model).state_dict()), averaging(model) is not None) for model in models]


def test_names_do_not_depend_on_being_compiled(ranks: Ranks) -> None:
    """Nor on what was done first: so one rank goes on with what two have saved, compiled or not."""
    names = ["weight", "bias"]
    expected = [(names, False), (names, True), (names, True)]
    assert ranks.run(names_when_compiled) == [expected] * ranks.world_size


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


def statistics_of_batches(group: RankGroup) -> tuple[list[float], bool]:
    """What a rank computes in its second pass with, after other samples in the first."""
    model = distributed(Sequential(BatchNorm1d(2), Linear(2, 1)), torch.device("cpu"))
    model(torch.full((4, 2), float(group.rank)) + torch.eye(4, 2))
    model.eval()
    model(torch.ones(4, 2))
    (mean,) = (each for name, each in model.named_buffers() if name.endswith("running_mean"))
    values: list[float] = mean.tolist()
    return values, bool(model.broadcast_buffers)


def test_models_with_statistics_are_wrapped(ranks: Ranks) -> None:
    """Their buffers are those of rank 0 in every pass, as DDP does it."""
    answers = ranks.run(statistics_of_batches)
    assert answers == [answers[0]] * ranks.world_size
    assert answers[0][1]


def _layer(width: int = 8) -> Sequential:
    return Sequential(Linear(width, width), ReLU())


def test_blocks_are_what_is_repeated() -> None:
    """The outermost parts of a kind that has several; single layers belong to the whole."""
    layers = [_layer() for _ in range(3)]
    encoder = TransformerEncoder(TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    experts = ModuleDict({"a": _layer(), "b": _layer()})
    nested = ModuleList([Sequential(ModuleList([_layer(), _layer()])) for _ in range(2)])
    model = Sequential(Embedding(5, 8), ModuleList(layers), encoder, experts, Linear(8, 5), nested)
    expected = [*layers, *encoder.layers, *experts.values(), *nested]
    assert list(blocks(model)) == expected


def test_a_plain_model_is_one_block() -> None:
    """Layers of some thousand numbers are not worth a message each; large ones are."""
    assert list(blocks(Sequential(Linear(8, 8), ReLU(), Linear(8, 8)))) == []
    with torch.device("meta"):
        large = Sequential(Linear(4096, 4096), ReLU(), Linear(4096, 4096))
    assert list(blocks(large)) == [large[0], large[2]]


def training_of_shares(group: RankGroup) -> dict[str, object]:
    """What a model computes whose parameters are shared out, and what each rank has of it."""

    def make() -> Module:
        torch.manual_seed(0)
        return Sequential(_layer(), Linear(8, 8), BatchNorm1d(8), Sequential(_layer(), _layer()))

    def train(model: Module) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(group.rank)
        losses = []
        for _ in range(4):
            loss = model(torch.randn(6, 8, generator=generator)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    model = sharded(make(), group)
    shared_losses = train(model)
    averaged_losses = train(distributed(make(), torch.device("cpu")))
    weight = next(model.parameters())
    assert isinstance(weight, DTensor)
    buffers = {name: each.tolist() for name, each in model.named_buffers()}
    return {
        "losses": shared_losses,
        "as averaged": averaged_losses,
        "rows": len(weight.to_local()),
        "whole": weight.full_tensor().tolist(),
        "buffers": buffers,
        "is itself": unwrapped(model) is model,
    }


def test_shared_out_parameters_compute_the_same(ranks: Ranks) -> None:
    """A rank has a part of every parameter, and the losses are those of averaged gradients."""
    answers = ranks.run(training_of_shares)
    for answer in answers:
        torch.testing.assert_close(answer["losses"], answer["as averaged"], rtol=1e-4, atol=1e-5)
        assert answer["is itself"]
    assert [answer["rows"] for answer in answers] == [3, 3, 2]
    assert answers[0]["whole"] == answers[1]["whole"] == answers[2]["whole"]


def buffers_after_a_pass(group: RankGroup) -> list[float]:
    """The statistics that a rank computes with after another one saw other samples."""
    torch.manual_seed(0)
    model = sharded(Sequential(BatchNorm1d(2), Linear(2, 1)), group)
    model(torch.full((4, 2), float(group.rank)) + torch.eye(4, 2))
    model.eval()
    model(torch.ones(4, 2))
    (mean,) = (each for name, each in model.named_buffers() if name.endswith("running_mean"))
    values: list[float] = mean.tolist()
    return values


def test_statistics_are_those_of_rank_0(ranks: Ranks) -> None:
    """They would drift apart, and only those of rank 0 are saved."""
    first, *others = ranks.run(buffers_after_a_pass)
    assert others == [first] * 2


def different_models(group: RankGroup) -> str:
    """What is said when each rank makes a model of its own."""
    torch.manual_seed(group.rank)
    try:
        sharded(Linear(4, 4), group)
    except UserCodeError as error:
        return error.message
    return "nothing"


def test_different_models_are_refused(ranks: Ranks) -> None:
    """Of each one a part would be taken."""
    message = "the ranks have made different Linears, of which each would keep a part"
    assert ranks.run(different_models) == [message] * ranks.world_size
