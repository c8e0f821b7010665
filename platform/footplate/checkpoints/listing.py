"""Which checkpoints are there, and which of them count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from footplate.checkpoints.manifest import COMMITTED, DAMAGED
from footplate.store import (
    CheckpointName,
    Claim,
    Progress,
    RunPaths,
    Store,
    ask_many,
    counted_until,
    read_claims,
    read_record_if_there,
)

__all__ = [
    "Listed",
    "committed",
    "counted",
    "counting",
    "is_committed",
    "is_damaged",
    "list_checkpoints",
    "told_of",
    "uncommitted",
]

# Of the attempts, so many of the newest are asked what they have saved.
_ASKED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """
    The checkpoint folders of a run, each list by step.

    Attributes:
        committed: With a commit marker, and not known to be damaged.
        damaged: With a commit marker, and found damaged since.
        uncommitted: Without a marker: being written, or left over from a kill.
    """

    committed: tuple[CheckpointName, ...] = ()
    damaged: tuple[CheckpointName, ...] = ()
    uncommitted: tuple[CheckpointName, ...] = ()


def list_checkpoints(store: Store, run: RunPaths) -> Listed:
    """All checkpoint folders of a run."""
    return _listed(store, run, _folders(store, run))


def _listed(store: Store, run: RunPaths, names: Sequence[CheckpointName]) -> Listed:
    """What these folders are."""
    complete = _those(store, names, lambda name: is_committed(store, run, name))
    damaged = _those(store, complete, lambda name: is_damaged(store, run, name))
    return Listed(
        committed=tuple(name for name in complete if name not in damaged),
        damaged=damaged,
        uncommitted=tuple(name for name in names if name not in complete),
    )


def committed(store: Store, run: RunPaths) -> list[CheckpointName]:
    """All checkpoints with a commit marker that are not known to be damaged, by step."""
    return list(list_checkpoints(store, run).committed)


def uncommitted(store: Store, run: RunPaths) -> list[CheckpointName]:
    """Checkpoint folders without a marker: being written, or left over from a kill."""
    return list(list_checkpoints(store, run).uncommitted)


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


def told_of(store: Store, run: RunPaths, claims: Sequence[Claim]) -> list[CheckpointName]:
    """
    Checkpoints that the newest attempts have told of and that are there, whatever is listed.

    Args:
        claims: Of the run, oldest first.
    """
    attempts = [run.attempt(claim.attempt) for claim in claims[-_ASKED:]]
    progress = [read_record_if_there(store, each.progress, Progress) for each in attempts]
    told = {CheckpointName.parse(each.checkpoint) for each in progress if each and each.checkpoint}
    told |= {claim.start for claim in claims[-_ASKED:]}
    names = sorted(name for name in told if name is not None)
    return list(_listed(store, run, names).committed)


def is_committed(store: Store, run: RunPaths, name: CheckpointName) -> bool:
    """Whether a checkpoint has its commit marker."""
    return store.size(f"{run.checkpoint(name)}/{COMMITTED}") is not None


def is_damaged(store: Store, run: RunPaths, name: CheckpointName) -> bool:
    """Whether a checkpoint was found damaged, and marked so."""
    return store.size(f"{run.checkpoint(name)}/{DAMAGED}") is not None


def _folders(store: Store, run: RunPaths) -> list[CheckpointName]:
    parsed = (CheckpointName.parse(folder) for folder in store.folders(run.checkpoints))
    return sorted(name for name in parsed if name is not None)


def _those(
    store: Store, names: Sequence[CheckpointName], question: Callable[[CheckpointName], bool]
) -> tuple[CheckpointName, ...]:
    """Those of the names for which the store says yes."""
    answers = ask_many(store, question, names)
    return tuple(name for name, answer in zip(names, answers, strict=True) if answer)
