"""Which checkpoints are there, and which of them count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from footplate.checkpoints.manifest import COMMITTED
from footplate.store import CheckpointName, RunPaths, Store, counted_until, read_claims

__all__ = ["committed", "counted", "counting", "is_committed", "uncommitted"]


def committed(store: Store, run: RunPaths) -> list[CheckpointName]:
    """All checkpoints with a commit marker, by step."""
    return [name for name in _folders(store, run) if is_committed(store, run, name)]


def uncommitted(store: Store, run: RunPaths) -> list[CheckpointName]:
    """Checkpoint folders without a marker: being written, or left over from a kill."""
    return [name for name in _folders(store, run) if not is_committed(store, run, name)]


def counted(
    names: Sequence[CheckpointName], bounds: Mapping[int, int | None]
) -> list[CheckpointName]:
    """
    The checkpoints that count, by step.

    Args:
        names: Committed checkpoints.
        bounds: Last step that counts of each attempt (see ``counted_until``). What an unknown
            attempt wrote does not count.
    """

    def counts(name: CheckpointName) -> bool:
        if name.attempt not in bounds:
            return False
        bound = bounds[name.attempt]
        return bound is None or name.step <= bound

    return sorted(name for name in names if counts(name))


def counting(store: Store, run: RunPaths) -> list[CheckpointName]:
    """The committed checkpoints of a run that count now, by step."""
    return counted(committed(store, run), counted_until(read_claims(store, run)))


def _folders(store: Store, run: RunPaths) -> list[CheckpointName]:
    parsed = (CheckpointName.parse(folder) for folder in store.folders(run.checkpoints))
    return sorted(name for name in parsed if name is not None)


def is_committed(store: Store, run: RunPaths, name: CheckpointName) -> bool:
    """Whether a checkpoint has its commit marker."""
    return store.size(f"{run.checkpoint(name)}/{COMMITTED}") is not None
