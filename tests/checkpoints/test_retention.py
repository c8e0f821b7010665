"""Removing checkpoints, and only the right ones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from footplate.checkpoints import (
    Remover,
    Retention,
    collect_older_orphans,
    collect_orphans,
    committed,
    discard,
    is_committed,
    pin,
    read_pins,
    uncommitted,
    unpin,
)
from footplate.checkpoints.index import data_file
from footplate.checkpoints.manifest import COMMITTED, DAMAGED, MANIFEST
from footplate.errors import CheckpointError, CheckpointGoneError, FencedError, StoreError
from footplate.spec import Keep
from footplate.store import CheckpointName, ObjectInfo, Store

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


class _CountingStore(Store):
    """A folder that remembers which manifests were read."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.manifests: list[str] = []
        self.pins: list[str] = []

    def get(self, path: str) -> bytes:
        if path.endswith(MANIFEST):
            self.manifests.append(path)
        if "/pins/" in path:
            self.pins.append(path)
        return super().get(path)


class _BreakingStore(Store):
    """Lists nothing any more once a marker was taken away."""

    is_broken = False

    def delete(self, path: str) -> None:
        super().delete(path)
        self.is_broken = True

    def objects(self, prefix: str) -> list[ObjectInfo]:
        if self.is_broken:
            raise StoreError("no listing")
        return super().objects(prefix)


class _PinningStore(Store):
    """
    A folder in which somebody pins a checkpoint right before the n-th thing done to it.

    Attributes:
        told: What became of that; None if it did not come to it.
        left: Things still to be done before.
    """

    def __init__(self, line: Line, name: CheckpointName, moment: int) -> None:
        super().__init__(line.store.uri)
        self.told: str | None = None
        self.left = moment
        self._line = line
        self._name = name

    def objects(self, prefix: str) -> list[ObjectInfo]:
        self._act()
        return super().objects(prefix)

    def get(self, path: str) -> bytes:
        self._act()
        return super().get(path)

    def delete(self, path: str) -> None:
        self._act()
        super().delete(path)

    def delete_folder(self, folder: str) -> None:
        self._act()
        super().delete_folder(folder)
        self._act()

    def _act(self) -> None:
        if self.told is None and self.left == 0:
            try:
                pin(self._line.store, self._line.run, "late", self._name, by="ada", time=1.0)
                self.told = "pinned"
            except CheckpointGoneError:
                self.told = "gone"
        self.left -= self.left > 0


@pytest.mark.parametrize("keep_last", [1, 2, 3])
def test_pruning_keeps_the_last_and_nothing_else(line: Line, keep_last: int) -> None:
    """After every checkpoint, so many are left, and the newest is what training goes on from."""
    names = []
    for step in (100, 200, 300, 2500, 3000):
        names.append(line.save(step))
        Retention(line.store, line.run, attempt=1, keep=Keep(last=keep_last)).prune()
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
    Retention(line.store, line.run, attempt=2, keep=Keep(last=2)).prune()
    assert committed(line.store, line.run) == [second, third]


def test_pruning_removes_what_no_attempt_will_read(line: Line) -> None:
    """Dead ends do not take the place of checkpoints that count; they and halves of them go."""
    first = line.save(100)
    dead_end, half = line.save(900), line.write(950).name
    line.claim(2, first)
    second = line.save(200, attempt=2)
    removed = Retention(line.store, line.run, attempt=2, keep=Keep(last=2)).prune()
    assert set(removed) == {dead_end, half}
    assert line.store.folders(line.run.checkpoints) == [str(first), str(second)]


def test_pruning_leaves_alone_what_may_be_written_now(line: Line) -> None:
    """A folder of this attempt that is older than its newest checkpoint is a leftover, no other."""
    left = line.write(100).name
    saved, begun = line.save(200), line.write(300).name
    assert Retention(line.store, line.run, attempt=1, keep=Keep(last=1)).prune() == [left]
    assert uncommitted(line.store, line.run) == [begun]
    assert committed(line.store, line.run) == [saved]


def test_what_an_attempt_started_from_stays(line: Line) -> None:
    """It is the newest that was read whole, should those after it turn out to be damaged."""
    start = line.save(100)
    line.claim(2, start)
    retention = Retention(line.store, line.run, attempt=2, keep=Keep(last=1))
    for step in (200, 300):
        newest = line.save(step, attempt=2)
        retention.prune()
    assert committed(line.store, line.run) == [start, newest]
    line.claim(3, newest)
    last = line.save(400, attempt=3)
    Retention(line.store, line.run, attempt=3, keep=Keep(last=1)).prune()
    assert committed(line.store, line.run) == [newest, last]


def test_the_best_are_found_in_the_manifests(line: Line) -> None:
    """Each is read once, whatever else is removed meanwhile."""
    keep = Keep(last=1, best=2, by="loss", mode="max")
    counting = _CountingStore(line.store.uri)
    retention = Retention(counting, line.run, attempt=1, keep=keep)
    names = []
    for step in (100, 200, 300, 400):
        names.append(line.save(step))
        retention.prune()
    assert committed(line.store, line.run) == [names[0], names[1], names[3]]
    assert sorted(counting.manifests) == [
        f"{line.run.checkpoint(name)}/{MANIFEST}" for name in names
    ]


def test_one_whose_manifest_cannot_be_read_stays(line: Line) -> None:
    """Nothing is removed on a guess."""
    odd = line.save(100)
    line.store.put(f"{line.run.checkpoint(odd)}/{MANIFEST}", b"{")
    other, newest = line.save(200), line.save(300)
    keep = Keep(last=1, best=1, by="none")
    assert Retention(line.store, line.run, attempt=1, keep=keep).prune() == [other]
    assert committed(line.store, line.run) == [odd, newest]


def test_damaged_checkpoints_are_no_checkpoints(line: Line) -> None:
    """They don't count, take nobody's place, and go once an attempt has enough of its own."""
    first, second, damaged = line.save(100), line.save(200), line.save(300)
    line.store.put(f"{line.run.checkpoint(damaged)}/{DAMAGED}", b"a piece differs")
    assert is_committed(line.store, line.run, damaged)
    assert committed(line.store, line.run) == line.counting() == [first, second]
    assert Retention(line.store, line.run, attempt=1, keep=Keep(last=2)).prune() == []
    line.claim(2, second)
    third = line.save(300, attempt=2)
    collect_orphans(line.store, line.run)
    collect_older_orphans(line.store, line.run, attempt=2)
    assert Retention(line.store, line.run, attempt=2, keep=Keep(last=2)).prune() == [first]
    assert line.folder(damaged).exists()
    fourth = line.save(400, attempt=2)
    assert Retention(line.store, line.run, attempt=2, keep=Keep(last=2)).prune() == [damaged]
    assert committed(line.store, line.run) == [second, third, fourth]


def test_a_pin_holds_whatever_the_policy_says(line: Line) -> None:
    """Also a checkpoint that does not count any more; without its pin it goes."""
    first, dead_end = line.save(100), line.save(200)
    pin(line.store, line.run, "release", first, by="ada", time=1.0)
    pin(line.store, line.run, "release", first, by="bob", time=2.0)
    pin(line.store, line.run, "odd", dead_end, by="ada", time=3.0)
    line.claim(2, first)
    for step in (300, 400):
        newest = line.save(step, attempt=2)
        Retention(line.store, line.run, attempt=2, keep=Keep(last=1)).prune()
    collect_orphans(line.store, line.run)
    assert committed(line.store, line.run) == [first, dead_end, newest]
    assert {name: found.by for name, found in read_pins(line.store, line.run).items()} == {
        "odd": "ada",
        "release": "ada",
    }
    unpin(line.store, line.run, "odd")
    unpin(line.store, line.run, "odd")
    assert Retention(line.store, line.run, attempt=2, keep=Keep(last=1)).prune() == [dead_end]


def test_a_pin_put_while_one_is_removed_holds_it_or_is_refused(line: Line) -> None:
    """Whatever the moment: nobody is told of a pin on what goes away."""
    name = line.save(100)
    files = line.store.objects(line.run.checkpoint(name))
    seen: list[tuple[str, bool]] = []
    for moment in itertools.count():
        pinning = _PinningStore(line, name, moment)
        is_removed = Remover(pinning, line.run).remove(name)
        if pinning.told is None:
            break
        seen.append((pinning.told, is_removed))
        left = line.store.objects(line.run.checkpoint(name))
        assert left == ([] if is_removed else files)
        if is_removed:
            line.save(100)
        unpin(line.store, line.run, "late")
    # Before the marker is taken away a pin holds; after that it comes too late.
    assert set(seen) == {("pinned", False), ("gone", True)}
    assert seen == sorted(seen, reverse=True)


def test_each_pin_is_read_once(line: Line) -> None:
    """However many checkpoints are removed; one that is put anew under its name is read again."""
    names = [line.save(step) for step in (100, 200, 300, 400)]
    pin(line.store, line.run, "release", names[0], by="ada", time=1.0)
    counting = _CountingStore(line.store.uri)
    remover = Remover(counting, line.run)
    assert [remover.remove(name) for name in names[:3]] == [False, True, True]
    assert counting.pins == [line.run.pin("release")]
    unpin(line.store, line.run, "release")
    pin(line.store, line.run, "release", names[3], by="ada", time=2.0)
    assert [remover.remove(name) for name in (names[0], names[3])] == [True, False]


def test_a_pin_needs_a_name_and_a_checkpoint(line: Line) -> None:
    """One name is one checkpoint, and one that is not there is not pinned."""
    first, second = line.save(100), line.save(200)
    pin(line.store, line.run, "release", first, by="ada", time=1.0)
    with pytest.raises(CheckpointError, match=f"is on {first}, since ada put it there"):
        pin(line.store, line.run, "release", second, by="bob", time=2.0)
    for name in ("", "a/b", "../up", ".hidden", "x" * 65):
        with pytest.raises(CheckpointError, match="is no name of a pin"):
            pin(line.store, line.run, name, first, by="ada", time=1.0)
    with pytest.raises(CheckpointGoneError):
        pin(line.store, line.run, "gone", CheckpointName(7, 1), by="ada", time=1.0)
    assert list(read_pins(line.store, line.run)) == ["release"]


def test_a_fenced_attempt_removes_nothing(line: Line) -> None:
    """Above all not what the newer attempt goes on from."""
    first = line.save(100)
    later = line.save(200)
    line.claim(2, first)
    with pytest.raises(FencedError):
        Retention(line.store, line.run, attempt=1, keep=Keep(last=1)).prune()
    assert committed(line.store, line.run) == [first, later]
    assert line.resume() == (first, [])


@pytest.mark.parametrize("removals", range(8))
def test_a_removal_cut_short_leaves_nothing_that_counts(line: Line, removals: int) -> None:
    """The marker goes first; what is left is collected when the run goes on."""
    before, newest = line.save(100), line.save(200)
    whole = len(line.store.objects(line.run.checkpoint(newest)))
    assert whole == 7
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
    (line.folder(only_staged) / f"{data_file(0)}#1").write_bytes(b"cut short")
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
    (line.folder(damaged) / data_file(0)).write_bytes(b"")
    chosen, _ = line.resume()
    assert chosen == good
    line.claim(2, good)
    collect_orphans(line.store, line.run)
    assert committed(line.store, line.run) == [good]


def test_who_is_fenced_while_removing_puts_back_what_it_can(line: Line) -> None:
    """A removal that took long: what the new attempt has started from meanwhile counts again."""
    name = line.save(100)
    files = line.store.objects(line.run.checkpoint(name))
    checks = iter((None, FencedError("attempt 1 is fenced")))

    def check() -> None:
        if (error := next(checks)) is not None:
            raise error

    with pytest.raises(FencedError):
        Remover(line.store, line.run).remove(name, check=check)
    assert [info.path for info in line.store.objects(line.run.checkpoint(name))] == [
        info.path for info in files
    ]
    assert committed(line.store, line.run) == [name]


def test_a_pin_that_cannot_be_read_takes_nothing_away(line: Line) -> None:
    """Whatever goes wrong between taking the marker and looking again, it is there afterwards."""
    name = line.save(100)
    removing = _BreakingStore(line.store.uri)
    with pytest.raises(StoreError, match="no listing"):
        Remover(removing, line.run).remove(name)
    assert committed(line.store, line.run) == [name]
