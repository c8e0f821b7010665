"""
Whether a run in a cluster goes on by itself; pure.

What the machines did is no reason to stop, what the user did is one. The rule looks only at what
stands in the store, so it is the same for a driver whose ranks have failed and for one that is
started in the place of another that was killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from footplate.errors import (
    CheckpointDamagedError,
    CheckpointGoneError,
    FencedError,
    PreemptedError,
    StartupError,
    WorkerLostError,
)
from footplate.store import AttemptResult, Claim, Failure

__all__ = [
    "Decision",
    "PastAttempt",
    "decide",
    "needs_new_driver",
    "was_lost",
    "workers_that_work",
]

# So many attempts in a row may end without a checkpoint newer than the one they started from.
_MOST_FRUITLESS = 3
# And so many with more workers than before, before it is tried with as many as then.
_ENOUGH_FRUITLESS = 2
# After the first fruitless attempt; each further one in a row adds as much.
_PAUSE_S = 10.0

# Nothing that a change of code, spec or data would cure.
_BY_MACHINES = frozenset(
    error.category
    for error in (
        WorkerLostError,
        PreemptedError,
        StartupError,
        CheckpointGoneError,
        CheckpointDamagedError,
    )
)
# Of these an attempt ends without having been able to save.
_LOSSES = frozenset(error.category for error in (WorkerLostError, StartupError))
# The machines' doing only where the store took a checkpoint before: then it is no wrong setting.
_OUTAGES = frozenset({"storage_access_denied"})

_GAVE_UP_HINT = (
    "Look for what these attempts have in common: a node, memory, a time limit. "
    "If they only end too early, save more often (checkpoint.every)."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PastAttempt:
    """
    An attempt that has ended.

    Attributes:
        result: What its driver wrote; None if that was killed.
        progressed: It left a checkpoint newer than the one it started from.
        has_saved: This attempt, or one before it, has left a checkpoint.
    """

    claim: Claim
    result: AttemptResult | None
    progressed: bool
    has_saved: bool

    @property
    def was_resized(self) -> bool:
        """Whether it ended to go on with other workers, which is no failure."""
        return self.result is not None and self.result.was_resized

    @property
    def ended_by(self) -> str:
        """Why it ended, in one line."""
        if self.result is None:
            return "the driver was killed"
        if self.result.failure is None:
            return f"it {self.result.status}"
        return self.result.failure.message.partition("\n")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """
    What follows.

    Attributes:
        action: ``go_on`` with another attempt; ``stop``, for the run has ended as its newest
            attempt says; ``give_up``, as :attr:`failure` says; ``leave``, for a newer attempt
            works on the run.
        pause_s: How long to wait before going on.
    """

    action: Literal["go_on", "stop", "give_up", "leave"]
    pause_s: float = 0.0
    failure: Failure | None = None


def decide(past: Sequence[PastAttempt], *, cluster: str | None, now: float) -> Decision:
    """
    Decide what follows an attempt that has ended.

    Attempts in another RayCluster say nothing about this one: whoever made a new one (a queue
    that admits the run again, a person who resumes it) has given the run another chance.

    Args:
        past: Of the run, oldest first; abandoned ones left out. The last few are enough.
        cluster: The RayCluster of now.
        now: Seconds since the epoch.
    """
    if not past:
        return Decision(action="go_on")
    if (final := _final(past[-1])) is not None:
        return Decision(action=final)
    tried = (attempt for attempt in reversed(past) if attempt.progressed or not attempt.was_resized)
    here = takewhile(lambda attempt: attempt.claim.cluster == cluster, tried)
    fruitless = list(takewhile(lambda attempt: not attempt.progressed, here))
    if len(fruitless) >= _MOST_FRUITLESS:
        return Decision(action="give_up", failure=_gave_up(fruitless[::-1], now))
    return Decision(action="go_on", pause_s=_PAUSE_S * len(fruitless))


def workers_that_work(past: Sequence[PastAttempt], *, cluster: str | None) -> int | None:
    """
    The most workers to go on with, if more of them have come to nothing since it went well.

    One pod that joins and cannot train should not end what the others can do.

    Args:
        past: As for :func:`decide`.
        cluster: The RayCluster of now.

    Returns:
        None if nothing speaks against as many as there are.
    """
    here = list(takewhile(lambda attempt: attempt.claim.cluster == cluster, reversed(past)))
    fruitless = list(takewhile(lambda attempt: not attempt.progressed, here))
    before = here[len(fruitless)].claim.workers if len(fruitless) < len(here) else None
    if before is None:
        return None
    tried = [each for each in fruitless if (each.claim.workers or 0) > before]
    return before if len(tried) >= _ENOUGH_FRUITLESS else None


def was_lost(result: AttemptResult) -> bool:
    """Whether machines have ended an attempt without notice, so that work was lost."""
    return result.failure is not None and result.failure.category in _LOSSES


def needs_new_driver(result: AttemptResult) -> bool:
    """
    Whether the attempt that follows is to be made by a new process.

    What a rank has met says nothing against its driver. Anything else may have its cause there, or
    in what Ray keeps for that process, like the place of a worker group that never came up.
    """
    return result.failure is not None and result.failure.rank is None


def _final(attempt: PastAttempt) -> Literal["stop", "leave"] | None:
    """What follows if that is settled by how the attempt ended."""
    result = attempt.result
    if result is None or result.status == "interrupted":
        return None
    if result.failure is None:
        return "stop"
    if result.failure.category == FencedError.category:
        return "leave"
    return None if _is_by_machines(result.failure, attempt.has_saved) else "stop"


def _is_by_machines(failure: Failure, has_saved: bool) -> bool:
    return failure.category in _BY_MACHINES or (has_saved and failure.category in _OUTAGES)


def _gave_up(fruitless: Sequence[PastAttempt], now: float) -> Failure:
    """The failure of the newest attempt, saying that it was not the only one."""
    newest = fruitless[-1].result
    failure = (newest and newest.failure) or Failure(
        time=now,
        error=WorkerLostError.__name__,
        category=WorkerLostError.category,
        message="",
        exit_code=WorkerLostError.exit_code,
    )
    lines = [f"  attempt {attempt.claim.attempt}: {attempt.ended_by}" for attempt in fruitless]
    message = "\n".join(
        [f"gave up after {len(fruitless)} attempts in a row without a newer checkpoint:", *lines]
    )
    return failure.model_copy(update={"message": message, "hint": _GAVE_UP_HINT})
