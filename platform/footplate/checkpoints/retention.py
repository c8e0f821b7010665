"""Which checkpoints are removed, and how."""

from __future__ import annotations

from collections.abc import Sequence

from footplate.checkpoints.listing import committed, counted, counting, uncommitted
from footplate.checkpoints.manifest import COMMITTED
from footplate.store import (
    CheckpointName,
    RunPaths,
    Store,
    check_not_fenced,
    counted_until,
    read_claims,
)

__all__ = ["collect_older_orphans", "collect_orphans", "discard", "expired", "prune"]


def expired(names: Sequence[CheckpointName], *, keep_last: int) -> list[CheckpointName]:
    """All but the newest ``keep_last`` of the checkpoints that count."""
    return sorted(names)[:-keep_last]


def prune(store: Store, run: RunPaths, *, attempt: int, keep_last: int) -> None:
    """
    Remove checkpoints that the policy no longer keeps.

    Raises:
        FencedError: If a newer attempt exists: then what to keep is its business.
    """
    check_not_fenced(store, run, attempt)
    for name in expired(counting(store, run), keep_last=keep_last):
        # Before each: what a newer attempt has claimed to start from may be among them.
        check_not_fenced(store, run, attempt)
        discard(store, run, name)


def collect_orphans(store: Store, run: RunPaths) -> None:
    """
    Remove what no attempt will ever read.

    That is folders without a marker, and checkpoints that do not count. To be called only while
    no other process works on the run.
    """
    for name in _orphans(store, run):
        discard(store, run, name)


def collect_older_orphans(store: Store, run: RunPaths, *, attempt: int) -> None:
    """
    Remove what earlier attempts have left that no attempt will ever read.

    One of them may still be at work: what it writes now does not count either.

    Raises:
        FencedError: If a newer attempt exists: then what to keep is its business.
    """
    for name in _orphans(store, run):
        if name.attempt < attempt:
            check_not_fenced(store, run, attempt)
            discard(store, run, name)


def _orphans(store: Store, run: RunPaths) -> list[CheckpointName]:
    complete = committed(store, run)
    uncounted = set(complete) - set(counted(complete, counted_until(read_claims(store, run))))
    return [*uncommitted(store, run), *sorted(uncounted)]


def discard(store: Store, run: RunPaths, name: CheckpointName) -> None:
    """Remove a checkpoint, the marker first: a removal cut short leaves nothing that counts."""
    folder = run.checkpoint(name)
    store.delete(f"{folder}/{COMMITTED}")
    store.delete_folder(folder)
