"""Snapshots as files, and disks that are full."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import xxhash

from footplate.checkpoints import CheckpointManifest
from footplate.checkpoints.index import parse_index, parse_shared
from footplate.checkpoints.publish import commit
from footplate.checkpoints.restore import CheckpointReader
from footplate.checkpoints.snapshot import Snapshotter
from footplate.checkpoints.writing import write_snapshot
from footplate.errors import StoreError, StoreFullError, UserCodeError
from footplate.store import CheckpointName, RunPaths, Store

if TYPE_CHECKING:
    from tests.checkpoints.conftest import Line

RUN = RunPaths(namespace="local", name="digits", uid="uid-1")
NAME = CheckpointName(7, 1)


def _snapshotter(rank: int = 0) -> Snapshotter:
    return Snapshotter(
        lambda value: [value] * (rank + 1),
        rank=rank,
        world_size=rank + 1,
        device=torch.device("cpu"),
    )


def _state() -> dict[str, Any]:
    """Small tensors, odd ones, empty ones, and one that is written in several blocks."""
    generator = torch.Generator().manual_seed(0)
    return {
        "large": torch.randn(1 << 23, generator=generator),
        "small": [torch.randn(n, generator=generator).to(torch.bfloat16) for n in range(70)],
        "none": torch.zeros(0, 3),
    }


def test_what_is_written_is_what_was_staged(tmp_path: Path) -> None:
    """Every piece is where the index says, with its digest; nothing else is in the folder."""
    state, store = _state(), Store(str(tmp_path))
    snapshot = _snapshotter().take({"model": state, "note": ["x"]}, {"random": (1, 2)})
    files = write_snapshot(store, RUN, NAME, snapshot)
    folder = tmp_path / RUN.checkpoint(NAME)
    assert {file.name: file.size for file in files} == {
        path.name: path.stat().st_size for path in folder.iterdir()
    }
    assert [file.name for file in files] == ["rank-00000.bin", "rank-00000.json", "state.json"]
    data = (folder / "rank-00000.bin").read_bytes()
    assert data == b"".join(snapshot.segments)
    content = (folder / "rank-00000.json").read_bytes()
    index = parse_index(content)
    assert index.size == len(data)
    assert [piece._replace(xxh3="") for piece in index.pieces] == list(snapshot.pieces)
    for piece in index.pieces:
        part = data[piece.start : piece.start + piece.bytes]
        assert piece.xxh3 == xxhash.xxh3_64_hexdigest(part), piece
    shared = (folder / "state.json").read_bytes()
    assert parse_shared(shared).keys() == {"model", "note"}
    digests = [file.xxh3 for file in files]
    assert digests == ["", xxhash.xxh3_64_hexdigest(content), xxhash.xxh3_64_hexdigest(shared)]


def test_what_is_written_is_read_back(line: Line) -> None:
    """All of it, and what belongs to the rank alone."""
    state = _state()
    snapshot = _snapshotter().take({"model": state}, {"random": torch.get_rng_state()})
    files = write_snapshot(line.store, line.run, NAME, snapshot)
    manifest = CheckpointManifest(
        step=7, position=0, epoch=0, attempt=1, world_size=1, written=1.0, files=files
    )
    commit(line.store, line.run, manifest)
    reader = CheckpointReader(line.store, line.run.checkpoint(NAME), manifest)
    back = reader.load("model")
    assert torch.equal(back["large"], state["large"])
    assert [t.tolist() for t in back["small"]] == [t.tolist() for t in state["small"]]
    assert back["none"].shape == (0, 3)
    own = reader.own(0)
    assert own is not None
    assert torch.equal(own["random"], torch.get_rng_state())


def test_a_rank_with_nothing_to_write_has_an_index(tmp_path: Path) -> None:
    """Without a data file; the state that all share is written by rank 0."""
    store = Store(str(tmp_path))
    snapshot = _snapshotter(rank=1).take({"model": {"step": 1}}, {"random": [1]})
    files = write_snapshot(store, RUN, NAME, snapshot)
    assert [file.name for file in files] == ["rank-00001.json"]
    folder = tmp_path / RUN.checkpoint(NAME)
    assert [path.name for path in folder.iterdir()] == ["rank-00001.json"]


def test_training_goes_on_while_a_snapshot_is_written(tmp_path: Path) -> None:
    """What is written is the state that was taken, to the bit."""
    model = torch.nn.Linear(1500, 1500)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(2, 1500)

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    store, snapshotter = Store(str(tmp_path)), _snapshotter()
    snapshot = snapshotter.take({"model": model.state_dict(), "adam": optimizer.state_dict()}, {})
    expected = b"".join(snapshot.segments)
    writer = threading.Thread(target=write_snapshot, args=(store, RUN, NAME, snapshot))
    writer.start()
    while writer.is_alive():
        step()
    writer.join()
    assert (tmp_path / RUN.checkpoint(NAME) / "rank-00000.bin").read_bytes() == expected


def test_a_full_disk_is_told_and_nothing_is_left(small_disk: Path) -> None:
    """Neither the file nor a part of it; what fits is written afterwards."""
    store = Store(str(small_disk))
    snapshotter = _snapshotter()
    large = snapshotter.take({"model": {"x": torch.zeros(100_000)}}, {})
    with pytest.raises(StoreFullError, match="no space left"):
        write_snapshot(store, RUN, NAME, large)
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []
    small = snapshotter.take({"model": {"x": torch.zeros(100)}}, {})
    assert len(write_snapshot(store, RUN, NAME, small)) == 3


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    """As an error of the store, of no space in particular."""
    (tmp_path / RUN.checkpoints).parent.mkdir(parents=True)
    (tmp_path / RUN.checkpoints).write_text("in the way")
    snapshot = _snapshotter().take({"model": {"x": torch.zeros(100)}}, {})
    with pytest.raises(StoreError, match=r"cannot write .*rank-00000\.bin") as caught:
        write_snapshot(Store(str(tmp_path)), RUN, NAME, snapshot)
    assert not isinstance(caught.value, StoreFullError)


def test_nothing_is_written_that_would_not_be_read(tmp_path: Path) -> None:
    """A state of endless lists is refused when it is saved, not when it is needed."""
    texts = ["x" * (1 << 20)] * 129
    snapshot = _snapshotter().take({"history": texts}, {})
    with pytest.raises(UserCodeError, match=r"state\.json would have \d+ bytes, and may have"):
        write_snapshot(Store(str(tmp_path)), RUN, NAME, snapshot)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
