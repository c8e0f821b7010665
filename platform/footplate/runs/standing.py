"""
Whether a run in a store is over, as far as the store can tell.

A run that trains on this machine holds a lock, which those who can read it see; the same folder may
be another machine's too. One that trains reports every second; but what waits in a queue, or is
suspended, reports nothing. So silence proves something only after a long time.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum

from footplate.runs.history import PastRun
from footplate.runs.local import LOCAL_NAMESPACE
from footplate.runs.lock import is_locked, lock_file
from footplate.runs.text import duration
from footplate.store import Progress, Store, read_record_if_there

__all__ = ["ABANDONED_S", "LONG_SILENCE_S", "Standing", "State", "judge", "standing_of"]

# A training process reports every second, but for long checkpoints and evaluations.
_SIGN_OF_LIFE_S = 300.0
LONG_SILENCE_S = 24 * 3600.0
"""After so long without a word nobody writes checkpoints any more, whatever became of the run."""

ABANDONED_S = 30 * 24 * 3600.0
"""Who waits in a queue, or is suspended, for longer than this is not waited for."""


class State(StrEnum):
    """What a store can tell of a run."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """It saved and ended; on this machine the same command goes on."""
    CANCELLED = "cancelled"
    RUNNING = "running"
    SILENT = "silent"
    """No end is written down, and nothing is heard: killed, queued, suspended or cut off."""
    KILLED = "killed"
    """No end is written down, and no process works on it."""


_OF_RESULT = {
    "succeeded": State.SUCCEEDED,
    "failed": State.FAILED,
    "interrupted": State.STOPPED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """
    Whether a run is over.

    Attributes:
        is_over: Nobody works on it, and nobody will unless it is started again.
        may_go_on: It may, by itself: what it would go on from is needed. So may one that is over as
            far as can be heard, for days.
        why: What that is concluded from, in a few words.
    """

    state: State
    is_over: bool
    may_go_on: bool
    why: str


def standing_of(store: Store, past: PastRun, *, now: float) -> Standing:
    """
    Look at a run.

    Args:
        now: Seconds since the epoch.
    """
    record = past.record
    progress = None
    if past.claims and past.result is None:
        newest = past.paths.attempt(past.claims[-1].attempt)
        progress = read_record_if_there(store, newest.progress, Progress)
    has_lock = None
    if _is_of_this_machine(store, past):
        # That of a bucket's run is in a place of each user and each container.
        missing = False if store.folder is not None else None
        has_lock = is_locked(lock_file(store, record.namespace, record.name), missing=missing)
    return judge(
        past,
        progress=progress,
        is_cancelled=store.size(past.paths.cancelled) is not None,
        has_lock=has_lock,
        now=now,
    )


def judge(
    past: PastRun,
    *,
    progress: Progress | None,
    is_cancelled: bool,
    has_lock: bool | None,
    now: float,
) -> Standing:
    """
    Conclude from what was seen; pure.

    Args:
        progress: Of the newest attempt, if that has not ended.
        is_cancelled: Whether the store says that its user has ended it.
        has_lock: Whether a process of this machine works on runs of its name; None if it is not
            for this machine or its user to tell.
    """
    result = past.result
    if result is not None and not result.goes_on:
        state = State.CANCELLED if is_cancelled else _OF_RESULT[result.status]
        return _over(state, f"its newest attempt has {state}")
    if has_lock:
        return _at_work("a process here works on it")
    silent_s = max(0.0, now - _heard(past, progress))
    why = f"heard of {duration(silent_s)} ago"
    if silent_s <= _SIGN_OF_LIFE_S:
        # Whatever the lock says: it may be one of another machine, or of another container.
        return _at_work(why)
    if has_lock is False:
        return _over(State.KILLED, "no process works on it")
    if is_cancelled:
        return _over(State.CANCELLED, f"cancelled, and last {why}")
    is_local = past.record.namespace == LOCAL_NAMESPACE
    return Standing(
        state=State.SILENT,
        is_over=silent_s > LONG_SILENCE_S,
        # On this machine, or another one, nothing begins again by itself.
        may_go_on=silent_s <= (LONG_SILENCE_S if is_local else ABANDONED_S),
        why=f"last {why}",
    )


def _at_work(why: str) -> Standing:
    return Standing(state=State.RUNNING, is_over=False, may_go_on=True, why=why)


def _over(state: State, why: str) -> Standing:
    return Standing(state=state, is_over=True, may_go_on=False, why=why)


def _heard(past: PastRun, progress: Progress | None) -> float:
    """When somebody last wrote something about it."""
    times = [past.record.created]
    if past.claims:
        times.append(past.claims[-1].claimed)
    if past.result is not None:
        times.append(past.result.ended)
    if progress is not None:
        times.append(progress.time)
    return max(times)


def _is_of_this_machine(store: Store, past: PastRun) -> bool:
    """Whether its lock is here: a folder's lies in it, that of a bucket's run where it runs."""
    newest = past.claims[-1] if past.claims else None
    if past.record.namespace != LOCAL_NAMESPACE or (newest and newest.cluster is not None):
        return False
    return store.folder is not None or newest is None or newest.host == socket.gethostname()
