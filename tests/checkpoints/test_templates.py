"""Objects go on from a checkpoint in place; what does not fit is told exactly, before anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from checkpoint_files import halves, make_checkpoint
from footplate.checkpoints.restore import CheckpointReader
from footplate.checkpoints.templates import restore_into
from footplate.errors import CheckpointDamagedError, CheckpointError
from footplate.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(str(tmp_path / "store"))


def _reader(store: Store, **tracked: Any) -> CheckpointReader:
    states = {name: item.state_dict() for name, item in tracked.items()}
    return CheckpointReader(store, "c", make_checkpoint(store, "c", states, [{}, {}], cut=halves))


class _Net(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inner = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
        self.last = nn.Linear(5, 5)
        self.tied = nn.Linear(5, 5)
        self.tied.weight = self.last.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.tied(self.last(self.inner(x)))
        return y


def _trained(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = _Net(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(8, 6)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def _assert_same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_model_is_filled_where_it_is(store: Store) -> None:
    """Its parameters are the same objects in the same memory, tied ones still tied."""
    model, _ = _trained()
    restored = _Net(9)
    before = {name: (p, p.data_ptr()) for name, p in restored.named_parameters()}
    restore_into(_reader(store, model=model), "model", restored)
    _assert_same(restored.state_dict(), model.state_dict())
    for name, parameter in restored.named_parameters():
        assert (parameter, parameter.data_ptr()) == before[name]
        assert parameter.requires_grad
    assert restored.tied.weight is restored.last.weight


def test_an_optimizer_goes_on(store: Store) -> None:
    """Its next steps are those of the saved one, and its state is in the new parameters' place."""
    model, optimizer = _trained()
    restored = _Net(9)
    other = torch.optim.AdamW(restored.parameters(), lr=0.7)
    reader = _reader(store, model=model, optimizer=optimizer)
    restore_into(reader, "model", restored)
    restore_into(reader, "optimizer", other)
    _assert_same(other.state_dict(), optimizer.state_dict())
    for each, its in ((model, optimizer), (restored, other)):
        torch.manual_seed(5)
        each(torch.randn(8, 6)).square().sum().backward()
        its.step()
    _assert_same(restored.state_dict(), model.state_dict())


def test_state_that_an_optimizer_has_is_filled_where_it_is(store: Store) -> None:
    """It need not be in memory twice; what lies otherwise than its parameter does is made anew."""
    model, optimizer = _trained()
    _, other = _trained(9)
    moments = {p: state["exp_avg"] for p, state in other.state.items()}
    odd = next(p for p in moments if p.dim() == 2)
    other.state[odd]["exp_avg"] = moments[odd].t().contiguous().t()
    restore_into(_reader(store, model=model, optimizer=optimizer), "optimizer", other)
    _assert_same(other.state_dict(), optimizer.state_dict())
    for parameter, moment in moments.items():
        is_kept = other.state[parameter]["exp_avg"].data_ptr() == moment.data_ptr()
        assert is_kept == (parameter is not odd)


def test_other_objects_take_over_what_they_gave(store: Store) -> None:
    """A scheduler, or anything with the two methods."""
    _, optimizer = _trained()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    optimizer.step()
    scheduler.step()
    other = torch.optim.lr_scheduler.StepLR(_trained()[1], 2)
    restore_into(_reader(store, scheduler=scheduler), "scheduler", other)
    assert other.state_dict() == scheduler.state_dict()


def test_a_gradient_scaler_goes_on(store: Store) -> None:
    """With its scale, and how long that has held."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    for factor in (1.0, float("inf"), 1.0, 1.0):
        _scaled_step(scaler, factor)
    other = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=7)
    restore_into(_reader(store, scaler=scaler), "scaler", other)
    assert other.state_dict() == scaler.state_dict()
    assert other.get_scale() == 4.0
    for each in (scaler, other):
        _scaled_step(each, 1.0)
        assert each.get_scale() == 8.0  # it is the third without infinity


def _scaled_step(scaler: torch.amp.GradScaler, factor: float) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale(parameter.sum() * factor).backward()
    scaler.step(optimizer)
    scaler.update()


class _Apart(_Net):
    """The same with its own weight for each layer."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.tied.weight = nn.Parameter(self.last.weight.detach().clone())


def test_weights_that_are_tied_now_must_have_been_the_same(store: Store) -> None:
    """Neither of the two is thrown away in silence, nor is the checkpoint taken for damaged."""
    model, tied = _Apart(), _Net(9)
    restore_into(_reader(store, model=model), "model", tied)
    _assert_same(tied.state_dict(), model.state_dict())
    assert tied.tied.weight is tied.last.weight
    with torch.no_grad():
        model.tied.weight[0, 0] += 1
    reader = _reader(store, model=model)
    message = "model/last.weight and model/tied.weight are one tensor in the code, two"
    with pytest.raises(CheckpointError, match=message) as caught:
        restore_into(reader, "model", tied)
    assert not isinstance(caught.value, CheckpointDamagedError)


class _Views(nn.Module):
    """Names parts of its weight, which lie in one memory, and that as NaN in part."""

    def __init__(self, value: float, *, apart: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((64, 48), value))
        with torch.no_grad():
            self.weight[0, 0] = float("nan")
        for number, part in enumerate(self.weight.detach().chunk(3, dim=1)):
            self.register_buffer(f"part{number}", part.clone() if apart else part)


def test_views_of_a_weight_are_filled_with_it(store: Store) -> None:
    """Partly common memory: all that is read must fit into it together."""
    model, viewed = _Views(1.0, apart=True), _Views(2.0, apart=False)
    restore_into(_reader(store, model=model), "model", viewed)
    torch.testing.assert_close(
        viewed.state_dict(), model.state_dict(), rtol=0, atol=0, equal_nan=True
    )
    model.get_buffer("part1")[3, 4] = 7.0
    with pytest.raises(CheckpointError, match="are one tensor in the code, two in the checkpoint"):
        restore_into(_reader(store, model=model), "model", viewed)


class _Peculiar(nn.Module):
    """Has state beside its tensors, and hears of loading."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.said = said
        self.loads = 0
        register: Any = self.register_load_state_dict_post_hook
        register(lambda module, _: module.hear())

    def hear(self) -> None:
        """Count."""
        self.loads += 1

    def get_extra_state(self) -> Any:
        """What is no tensor."""
        return {"said": self.said}

    def set_extra_state(self, state: Any) -> None:
        """Take it over."""
        self.said = state["said"]


def test_a_model_with_ways_of_its_own_has_its_way(store: Store) -> None:
    """What its hooks and its extra state do is done."""
    model, restored = _Peculiar("saved"), _Peculiar("new")
    restore_into(_reader(store, model=model), "model", restored)
    assert (restored.said, restored.loads) == ("saved", 1)
    assert torch.equal(restored.linear.weight, model.linear.weight)


class _OfItsOwn(nn.Linear):
    """Decides itself what its state is."""

    def state_dict(self, *_: Any, **__: Any) -> Any:
        """Only a part of it."""
        return {"only": self.weight.detach().sum(dim=0)}

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Take that part over."""
        with torch.no_grad():
            self.weight.copy_(state_dict["only"].expand_as(self.weight))


def test_a_model_with_another_state_takes_that_over(store: Store) -> None:
    """Nothing is presumed of it."""
    model, restored = _OfItsOwn(3, 2), _OfItsOwn(3, 2)
    restore_into(_reader(store, model=model), "model", restored)
    assert torch.equal(restored.weight[1], model.weight.sum(dim=0))


def test_what_does_not_fit_is_told_exactly(store: Store) -> None:
    """Names, shapes and types, of each at most ten and how many more; and nothing is changed."""
    saved = nn.ModuleDict(
        {"same": nn.Linear(2, 2), "wide": nn.Linear(2, 3), "old": nn.Linear(1, 1)}
    )
    code: Any = nn.ModuleDict(
        {"same": nn.Linear(2, 2), "wide": nn.Linear(2, 4), "new": nn.Linear(1, 1)}
    )
    code["many"] = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(12))
    code["same"].bias.data = code["same"].bias.data.double()
    before = code["same"].weight.clone()
    reader = _reader(store, net=saved)
    with pytest.raises(CheckpointError) as caught:
        restore_into(reader, "net", code)
    assert str(caught.value).splitlines() == [
        "checkpoint step-00000100.a0001 does not fit net:",
        "  only the code has: new.weight, new.bias, "
        + ", ".join(f"many.{number}.weight" for number in range(8))
        + ", and 4 more",
        "  only the checkpoint has: old.weight, old.bias",
        "  different are: same.bias (float32 [2] there, float64 [2] in the code), "
        "wide.weight (float32 [3, 2] there, float32 [4, 2] in the code), "
        "wide.bias (float32 [3] there, float32 [4] in the code)",
        "The code or its parameters changed since. Start over with --fresh.",
    ]
    assert torch.equal(code["same"].weight, before)


def test_an_optimizer_of_other_parameters_does_not_fit(store: Store) -> None:
    """As PyTorch says it."""
    _, optimizer = _trained()
    parameter = nn.Parameter(torch.zeros(1))
    with pytest.raises(CheckpointError, match=r"does not fit optimizer: .*parameter group"):
        restore_into(
            _reader(store, optimizer=optimizer), "optimizer", torch.optim.AdamW([parameter])
        )


def test_a_model_without_memory_can_not_be_restored(store: Store) -> None:
    """It has to be made first."""
    reader = _reader(store, model=nn.Linear(2, 2))
    with pytest.raises(CheckpointError, match="on meta"):
        restore_into(reader, "model", nn.Linear(2, 2, device="meta"))
