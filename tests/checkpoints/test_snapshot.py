"""The state at one moment, while training goes on."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from footplate.checkpoints.index import parse_shared
from footplate.checkpoints.planning import Box, held_boxes
from footplate.checkpoints.snapshot import Snapshot, Snapshotter
from footplate.checkpoints.staging import Source, Stage
from footplate.errors import CheckpointError, UserCodeError


def _alone() -> Snapshotter:
    return Snapshotter(lambda value: [value], rank=0, world_size=1, device=torch.device("cpu"))


def _tensors(snapshot: Snapshot) -> dict[str, torch.Tensor]:
    """What is in a snapshot's memory, put together."""
    data = torch.frombuffer(
        bytearray(b"".join(snapshot.segments)) or bytearray(1), dtype=torch.uint8
    )
    tensors: dict[str, torch.Tensor] = {}
    for piece in snapshot.pieces:
        dtype = getattr(torch, piece.dtype)
        whole = tensors.setdefault(piece.tensor, torch.empty(piece.shape, dtype=dtype))
        part = data[piece.start : piece.start + piece.bytes].view(dtype).reshape(piece.sizes)
        box = zip(piece.offsets, piece.sizes, strict=True)
        whole[tuple(slice(start, start + size) for start, size in box)] = part
    return tensors


class _Broken(dict[str, int]):
    """A mapping that can't be looked through."""

    def items(self) -> Any:
        raise ZeroDivisionError


class _Training:
    """A model under AdamW."""

    def __init__(self, width: int = 64) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.Linear(width, 3)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self._batch = torch.randn(8, width)

    def step(self) -> None:
        self.model(self._batch).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Copies of all tensors, under the names that a snapshot gives them."""
        copies = {
            f"model/{name}": tensor.clone() for name, tensor in self.model.state_dict().items()
        }
        for number, state in self.optimizer.state_dict()["state"].items():
            copies |= {f"optimizer/state.{number}.{key}": t.clone() for key, t in state.items()}
        return copies


def _assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def test_a_snapshot_is_the_state_at_its_moment_while_training_goes_on() -> None:
    """Bit for bit, whenever it is looked at before the next one is taken."""
    training, snapshotter = _Training(), _alone()
    for _ in range(3):
        training.step()
        expected = training.tensors()
        snapshot = snapshotter.take(training.state, {"random": torch.get_rng_state()})
        own = {"rank-00000/random": torch.get_rng_state()}
        looked: list[dict[str, torch.Tensor]] = []
        looker = threading.Thread(target=lambda: looked.append(_tensors(snapshot)))  # noqa: B023
        looker.start()
        while looker.is_alive():
            training.step()
        looker.join()
        training.step()
        _assert_equal(looked[0], expected | own)
        _assert_equal(_tensors(snapshot), expected | own)


def test_the_memory_is_used_again() -> None:
    """The next snapshot of the same state needs none of its own."""
    training, snapshotter = _Training(), _alone()
    training.step()
    first = snapshotter.take(training.state, {})
    places = [np.asarray(segment).ctypes.data for segment in first.segments]
    training.step()
    second = snapshotter.take(training.state, {})
    assert [np.asarray(segment).ctypes.data for segment in second.segments] == places
    assert second.pieces == first.pieces
    _assert_equal(_tensors(second), training.tensors())


def test_a_state_that_changes_its_form_is_followed() -> None:
    """Before the first step an optimizer has no state; later a list may have grown or shrunk."""
    training, snapshotter = _Training(), _alone()
    own: dict[str, Any] = {"history": []}
    for number in (0, 1, 5, 2, 0):
        expected = training.tensors()
        own = {"history": [np.full(100 * n, n) for n in range(number)]}
        snapshot = snapshotter.take(training.state, own)
        found = _tensors(snapshot)
        for n in range(number):
            raw = found.pop(f"rank-00000/history[{n}]")
            assert raw.numpy().view(np.int64).tolist() == [n] * 100 * n
        _assert_equal(found, expected)
        training.step()


def test_what_lies_between_pieces_is_always_the_same() -> None:
    """The same state gives the same file, also in memory that was used for another one."""
    snapshotter = _alone()
    snapshotter.take({"model": torch.full((1000,), 255, dtype=torch.uint8)}, {})
    state = {"model": [torch.ones(n, dtype=torch.uint8) for n in (1, 63, 64, 65, 100)]}
    again, fresh = snapshotter.take(state, {}), _alone().take(state, {})
    assert b"".join(again.segments) == b"".join(fresh.segments)
    assert all(piece.start % 64 == 0 for piece in fresh.pieces)
    assert fresh.bytes == sum(len(segment) for segment in fresh.segments) == 64 * 7


def test_a_state_without_tensors_has_no_bytes() -> None:
    """Nothing is staged, and what there is is in the trees."""
    snapshot = _alone().take({"model": {"step": 3}}, {"random": [1, 2]})
    assert snapshot.bytes == 0
    assert snapshot.pieces == ()
    assert snapshot.shared is not None
    assert parse_shared(snapshot.shared) == {"model": {"$": "dict", "items": [["step", 3]]}}
    assert snapshot.own == {"$": "dict", "items": [["random", [1, 2]]]}


def test_large_tensors_are_cut_and_put_together() -> None:
    """Their parts are taken from where they are, also of tensors with gaps between the rows."""
    tensor = torch.arange(3 * 1024 * 1024 * 10, dtype=torch.int32).reshape(3, 1024, -1)[:, :, 3:7]
    state = {"model": {"view": tensor, "large": torch.arange(20 << 20, dtype=torch.float32)}}
    snapshot = _alone().take(state, {})
    assert len(snapshot.pieces) > 2
    found = _tensors(snapshot)
    assert torch.equal(found["model/view"], tensor)
    assert torch.equal(found["model/large"], state["model"]["large"])


def test_much_is_in_several_segments() -> None:
    """They are one file all the same, and no piece is in two of them."""
    tensors = {str(n): torch.randn(n) for n in (9000, 10_000, 1, 3, 30_000, 20)}
    stage = Stage(torch.device("cpu"), segment_bytes=1 << 16)
    for _ in range(2):
        stage.arrange([Source(box, box) for box in held_boxes(tensors)])
        stage.copy(tensors)
        assert [len(segment) for segment in stage.segments] == [36032, 40128, 120000, 128]
        data = b"".join(stage.segments)
        for piece in stage.pieces:
            raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            part = raw[piece.start : piece.start + piece.bytes].view(torch.float32)
            assert torch.equal(part, tensors[piece.tensor])
        tensors = {name: tensor + 1 for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", ["", "a/b", "rank-00001"])
def test_a_name_that_could_be_mistaken_is_refused(name: str) -> None:
    """What all share is never taken for what belongs to a rank."""
    with pytest.raises(CheckpointError, match="can't be the name"):
        _alone().take({name: {}}, {})


def test_after_a_refusal_the_next_snapshot_is_right() -> None:
    """Nothing of what was refused is left in the plan."""
    training, snapshotter = _Training(), _alone()
    snapshotter.take(training.state, {})
    training.step()
    with pytest.raises(UserCodeError, match=r"^thing\.x is a object"):
        snapshotter.take({**training.state, "thing": {"x": object()}}, {})
    with pytest.raises(CheckpointError, match="can't be stored: ZeroDivisionError"):
        snapshotter.take({**training.state, "thing": _Broken(x=1)}, {})
    _assert_equal(_tensors(snapshotter.take(training.state, {})), training.tensors())


def test_a_state_that_memory_can_not_hold_is_told() -> None:
    """As an error of the checkpoint, that says how much was needed."""
    box = Box("x", "uint8", (1 << 50,), (0,), (1 << 50,))
    with pytest.raises(
        CheckpointError, match="no memory for a copy of the state: 1125899906842624"
    ):
        Stage(torch.device("cpu")).arrange([Source(box, box)])
