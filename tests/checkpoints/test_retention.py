"""Removing checkpoints, and only the right ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.checkpoints import (
    collect_older_orphans,
    collect_orphans,
    committed,
    discard,
    expired,
    prune,
    uncommitted,
)
from footplate.checkpoints.manifest import COMMITTED
from footplate.checkpoints.publish import SHARED_FILE
from footplate.errors import FencedError
from footplate.store import CheckpointName, Store

if TYPE_CHECKING:
    from tests.checkpoints.conftest import Line


class _Interrupted(BaseException):
    """What ends a process at once; nothing catches it."""


class _FailingStore(Store):
    """A folder whose cleaner dies after some removals."""

    def __init__(self, uri: str, removals: int) -> None:
        super().__init__(uri)
        self.removals = removals

    def delete(self, path: str) -> None:
        if self.removals == 0:
            raise _Interrupted
        self.removals -= 1
        super().delete(path)


@given(
    steps=st.lists(st.integers(1, 10**9), unique=True, max_size=12),
    keep_last=st.integers(1, 5),
)
def test_the_newest_are_kept(steps: list[int], keep_last: int) -> None:
    """So many by step, in whatever order they are listed; the rest expires."""
    names = [CheckpointName(step, 1) for step in steps]
    gone = expired(names, keep_last=keep_last)
    kept = set(names) - set(gone)
    assert len(kept) == min(keep_last, len(names))
    assert all(name < keeper for name in gone for keeper in kept)


@pytest.mark.parametrize("keep_last", [1, 2, 3])
def test_pruning_keeps_the_last_and_nothing_else(line: Line, keep_last: int) -> None:
    """After every checkpoint, so many are left, and the newest is what training goes on from."""
    names = []
    for step in (100, 200, 300, 2500, 3000):
        names.append(line.save(step))
        prune(line.store, line.run, attempt=1, keep_last=keep_last)
        assert committed(line.store, line.run) == names[-keep_last:]
        assert uncommitted(line.store, line.run) == []
    assert line.resume() == (names[-1], [])
    assert sorted(folder.name for folder in line.folder(names[0]).parent.iterdir()) == [
        str(name) for name in names[-keep_last:]
    ]


def test_pruning_counts_over_attempts(line: Line) -> None:
    """A new attempt's first checkpoint does not throw away all that came before."""
    line.save(100)
    second = line.save(200)
    line.claim(2, second)
    third = line.save(300, attempt=2)
    prune(line.store, line.run, attempt=2, keep_last=2)
    assert committed(line.store, line.run) == [second, third]


def test_pruning_leaves_alone_what_does_not_count(line: Line) -> None:
    """Dead ends do not take the place of checkpoints that count, nor are they its business."""
    first = line.save(100)
    dead_end = line.save(900)
    line.claim(2, first)
    second = line.save(200, attempt=2)
    prune(line.store, line.run, attempt=2, keep_last=2)
    assert committed(line.store, line.run) == [first, second, dead_end]


def test_a_fenced_attempt_removes_nothing(line: Line) -> None:
    """Above all not what the newer attempt goes on from."""
    first = line.save(100)
    later = line.save(200)
    line.claim(2, first)
    with pytest.raises(FencedError):
        prune(line.store, line.run, attempt=1, keep_last=1)
    assert committed(line.store, line.run) == [first, later]
    assert line.resume() == (first, [])


@pytest.mark.parametrize("removals", range(6))
def test_a_removal_cut_short_leaves_nothing_that_counts(line: Line, removals: int) -> None:
    """The marker goes first; what is left is collected when the run goes on."""
    before, newest = line.save(100), line.save(200)
    whole = len(line.store.objects(line.run.checkpoint(newest)))
    assert whole == 5
    cleaner = _FailingStore(line.store.uri, removals)
    done = False
    try:
        discard(cleaner, line.run, newest)
        done = True
    except _Interrupted:
        pass
    assert done == (removals == whole)
    left = line.store.objects(line.run.checkpoint(newest))
    assert len(left) == whole - removals
    assert line.resume() == (before if removals else newest, [])
    if removals:
        assert committed(line.store, line.run) == [before]
        collect_orphans(line.store, line.run)
        assert [folder.name for folder in line.folder(before).parent.iterdir()] == [str(before)]


def test_discarding_twice_is_no_error(line: Line) -> None:
    """Nor is discarding what was never there."""
    name = line.save(100)
    discard(line.store, line.run, name)
    discard(line.store, line.run, name)
    assert not line.folder(name).exists()


def test_orphans_are_collected_and_nothing_else(line: Line) -> None:
    """Half-written folders, dead ends, leftovers of a killed write; never what counts."""
    first = line.save(100)
    dead_end, half = line.save(300), line.write(400).name
    line.claim(2, first)
    second = line.save(200, attempt=2)
    unknown = CheckpointName(50, 9)
    line.store.put(f"{line.run.checkpoint(unknown)}/{COMMITTED}", b"")
    only_staged = CheckpointName(500, 2)
    line.folder(only_staged).mkdir()
    (line.folder(only_staged) / f"{SHARED_FILE}#1").write_bytes(b"cut short")
    collect_orphans(line.store, line.run)
    for gone in (dead_end, half, unknown, only_staged):
        assert not line.folder(gone).exists()
    assert committed(line.store, line.run) == line.counting() == [first, second]
    assert line.resume() == (second, [])


def test_only_older_orphans_are_collected_beside_others(line: Line) -> None:
    """What this attempt or a newer one is about to write stays."""
    first = line.save(100)
    dead_end, half = line.save(300), line.write(400).name
    line.claim(2, first)
    second, own_half = line.save(200, attempt=2), line.write(250, attempt=2).name
    newer_half = line.write(260, attempt=3).name
    collect_older_orphans(line.store, line.run, attempt=2)
    for gone in (dead_end, half):
        assert not line.folder(gone).exists()
    assert committed(line.store, line.run) == [first, second]
    assert uncommitted(line.store, line.run) == [own_half, newer_half]


def test_a_fenced_attempt_collects_nothing(line: Line) -> None:
    """What counts is the newer one's business."""
    first = line.save(100)
    line.claim(2, first)
    half = line.write(400).name
    line.claim(3, first)
    with pytest.raises(FencedError):
        collect_older_orphans(line.store, line.run, attempt=2)
    assert uncommitted(line.store, line.run) == [half]


def test_orphans_of_a_run_without_checkpoints(line: Line) -> None:
    """There is nothing to collect, and nothing goes wrong."""
    collect_orphans(line.store, line.run)
    assert committed(line.store, line.run) == []


def test_after_a_fall_back_the_damaged_ones_are_collected(line: Line) -> None:
    """The attempt that passed them over has cut them off."""
    good = line.save(100)
    damaged = line.save(200)
    (line.folder(damaged) / SHARED_FILE).write_bytes(b"")
    chosen, _ = line.resume()
    assert chosen == good
    line.claim(2, good)
    collect_orphans(line.store, line.run)
    assert committed(line.store, line.run) == [good]
