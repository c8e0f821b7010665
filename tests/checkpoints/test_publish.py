"""Writing and committing checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
import torch

from footplate.checkpoints import (
    CheckpointFile,
    CheckpointManifest,
    committed,
    read_manifest,
    uncommitted,
)
from footplate.checkpoints.manifest import COMMITTED
from footplate.checkpoints.publish import commit
from footplate.checkpoints.restore import CheckpointReader
from footplate.checkpoints.snapshot import Snapshotter
from footplate.checkpoints.writing import write_snapshot
from footplate.errors import CheckpointError, FencedError, ObjectExistsError, StoreFullError
from footplate.store import CheckpointName, Store
from rank_threads import RankThreads

if TYPE_CHECKING:
    from pathlib import Path

    from tests.checkpoints.conftest import Line


class _Interrupted(BaseException):
    """What ends a process at once; nothing catches it."""


class _FailingStore(Store):
    """A folder whose writer dies after some writes."""

    def __init__(self, uri: str, writes: int) -> None:
        super().__init__(uri)
        self._left = writes

    def put(self, path: str, content: bytes) -> None:
        self._spend()
        super().put(path, content)

    def put_blocks(self, path: str, blocks: Iterable[memoryview], size: int) -> None:
        self._spend()
        super().put_blocks(path, blocks, size)

    def create(self, path: str, content: bytes) -> None:
        self._spend()
        super().create(path, content)

    def _spend(self) -> None:
        if self._left == 0:
            raise _Interrupted
        self._left -= 1


def test_a_committed_checkpoint_is_read_back(line: Line) -> None:
    """Its manifest and every rank's state, by the name of the file."""
    written = line.write(500)
    commit(line.store, line.run, written)
    manifest = read_manifest(line.store, line.run, written.name)
    assert manifest == written
    assert sorted(file.name for file in manifest.files) == [
        *("rank-00000.bin", "rank-00000.json", "rank-00001.bin", "rank-00001.json", "state.json")
    ]
    reader = CheckpointReader(line.store, line.run.checkpoint(written.name), manifest)
    assert reader.own(1) == {"random": [500, 1]}
    assert reader.own(2) is None
    assert committed(line.store, line.run) == [written.name]
    assert uncommitted(line.store, line.run) == []


def test_until_it_is_committed_a_checkpoint_is_invisible(line: Line) -> None:
    """All its data alone is no checkpoint."""
    manifest = line.write(500)
    assert committed(line.store, line.run) == []
    assert uncommitted(line.store, line.run) == [manifest.name]
    assert line.resume() == (None, [])
    assert read_manifest(line.store, line.run, manifest.name) is None


@pytest.mark.parametrize("writes", range(8))
def test_a_writer_killed_between_any_two_writes_leaves_nothing_that_counts(
    line: Line, writes: int
) -> None:
    """Only with the last of its writes is the checkpoint there, and then whole."""
    before = line.save(100)
    line.store = _FailingStore(line.store.uri, writes)
    done = False
    try:
        line.save(200)
        done = True
    except _Interrupted:
        pass
    assert done == (writes == 7)
    chosen, rejected = line.resume()
    assert chosen == (CheckpointName(200, 1) if done else before)
    assert rejected == []


def test_a_file_that_is_missing_or_cut_is_not_committed(line: Line) -> None:
    """The store is asked for every file before the marker is written."""
    manifest = line.write(500)
    file = line.folder(manifest.name) / "rank-00001.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    match = rf"rank-00001\.bin has {len(whole) - 1} bytes, not the {len(whole)} written"
    with pytest.raises(CheckpointError, match=match):
        commit(line.store, line.run, manifest)
    file.unlink()
    with pytest.raises(CheckpointError, match="has None bytes"):
        commit(line.store, line.run, manifest)
    assert committed(line.store, line.run) == []
    file.write_bytes(whole)
    commit(line.store, line.run, manifest)
    assert line.resume() == (manifest.name, [])


def test_a_fenced_attempt_can_not_commit(line: Line) -> None:
    """Neither what it wrote before the newer claim nor what it writes after it."""
    manifest = line.write(500)
    line.claim(2)
    with pytest.raises(FencedError, match=r"attempt 1 .* fenced by attempt 2"):
        commit(line.store, line.run, manifest)
    with pytest.raises(FencedError):
        line.save(600)
    assert committed(line.store, line.run) == []
    assert line.save(100, attempt=2) == CheckpointName(100, 2)


def test_a_late_commit_that_slipped_through_is_ignored(line: Line) -> None:
    """The fence is checked before the marker is written; what comes between does no harm."""
    first = line.save(100)
    late = line.write(200)
    line.claim(2, first)
    # As if this attempt had looked for newer ones just before there was one.
    line.store.put(f"{line.run.checkpoint(late.name)}/{COMMITTED}", b"late")
    assert late.name in committed(line.store, line.run)
    assert line.counting() == [first]
    assert line.resume() == (first, [])


def test_a_checkpoint_is_committed_once(line: Line) -> None:
    """The same again is the same; another one in its place would be a mistake, and is told so."""
    manifest = line.write(500)
    commit(line.store, line.run, manifest)
    commit(line.store, line.run, manifest)
    with pytest.raises(ObjectExistsError):
        commit(line.store, line.run, manifest.model_copy(update={"position": 7}))


def test_ranks_write_into_one_checkpoint_at_once(line: Line) -> None:
    """Their files do not disturb each other."""
    ranks = RankThreads(8)
    model = {"weight": torch.randn(1000, 1000)}

    def write(rank: int) -> tuple[CheckpointFile, ...]:
        snapshotter = Snapshotter(
            ranks.gather_of(rank), rank=rank, world_size=8, device=torch.device("cpu")
        )
        own = {"rank": rank, "noise": list(range(rank, 5000))}
        snapshot = snapshotter.take({"model": model}, own, replicated=lambda _: True)
        return write_snapshot(line.store, line.run, CheckpointName(500, 1), snapshot)

    files = tuple(itertools.chain.from_iterable(ranks.run(write)))
    manifest = CheckpointManifest(
        step=500, position=0, epoch=0, attempt=1, world_size=8, written=1.0, files=files
    )
    commit(line.store, line.run, manifest)
    reader = CheckpointReader(line.store, line.run.checkpoint(manifest.name), manifest)
    assert torch.equal(reader.load("model")["weight"], model["weight"])
    for rank in range(8):
        assert reader.own(rank) == {"rank": rank, "noise": list(range(rank, 5000))}


def test_a_full_disk_keeps_the_checkpoints_before(small_disk: Path, line: Line) -> None:
    """The one that did not fit is not there, the ones before verify."""
    line.store = Store(str(small_disk))
    line.claim(1)
    first = line.save(100)
    snapshotter = Snapshotter(
        lambda value: [value], rank=0, world_size=1, device=torch.device("cpu")
    )
    too_much = snapshotter.take({"model": {"x": torch.zeros(100_000)}}, {})
    with pytest.raises(StoreFullError):
        write_snapshot(line.store, line.run, CheckpointName(200, 1), too_much)
    assert line.resume() == (first, [])
    assert line.save(300) == CheckpointName(300, 1)
    assert line.resume() == (CheckpointName(300, 1), [])
