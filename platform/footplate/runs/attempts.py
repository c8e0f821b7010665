"""The attempts of a run, as its user sees them: why each one ended, and what that cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from footplate.runs.text import one_line
from footplate.store import (
    AttemptResult,
    Claim,
    Failure,
    Notice,
    Progress,
    RunPaths,
    Store,
    ask_many,
    read_record_if_there,
)

__all__ = ["AttemptCost", "AttemptSummary", "Words", "attempts_of", "read_attempts"]

Ending = Literal["succeeded", "failed", "interrupted", "resized", "killed", "abandoned", "open"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptCost:
    """
    What it cost a run that an attempt ended and another one followed.

    Attributes:
        repeated_steps: Made by it, and made again since: they were not saved.
        pause_s: From its last word until the next one was claimed.
    """

    repeated_steps: int
    pause_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptSummary:
    """
    One attempt.

    Attributes:
        began: When it was claimed, in seconds since the epoch.
        heard: When it last said something: its result, if it came to that.
        first_step: Steps that were done when it began.
        last_step: Steps that were done when it ended, as far as it came to say so.
        ending: ``resized`` is one that ended to go on with other workers; of one that is ``open``
            nobody can tell here whether it goes on or was killed; ``killed`` is one that has said
            nothing, and has a successor.
        reason: Why it ended, or that it was told of machines that go away; may be empty.
        workers: Worker pods that it trained with, where that may change.
        cost: None unless another one followed that does its work.
    """

    attempt: int
    began: float
    heard: float
    first_step: int
    last_step: int
    ending: Ending
    reason: str
    category: str | None
    workers: int | None
    cluster: str | None
    cost: AttemptCost | None = None

    def to_dict(self) -> dict[str, Any]:
        """The form for scripts."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """What an attempt left besides its claim."""

    result: AttemptResult | None = None
    progress: Progress | None = None
    notice: Notice | None = None


def read_attempts(store: Store, run: RunPaths, claims: Sequence[Claim]) -> list[AttemptSummary]:
    """
    All attempts of a run, oldest first.

    Args:
        claims: Of the run, oldest first.

    Raises:
        StoreError: If the store does not tell.
    """
    return attempts_of(claims, ask_many(store, lambda claim: _read(store, run, claim), claims))


def attempts_of(claims: Sequence[Claim], words: Sequence[Words]) -> list[AttemptSummary]:
    """
    What the attempts were, by what they left; pure.

    Args:
        claims: Oldest first.
        words: Of each of them.
    """
    newest = claims[-1].attempt if claims else 0
    found = [
        _attempt(claim, left, has_successor=claim.attempt < newest)
        for claim, left in zip(claims, words, strict=True)
    ]
    followers = [each for each in found if each.ending != "abandoned"]
    costs = {one.attempt: _cost(one, its) for one, its in pairwise(followers)}
    return [replace(each, cost=costs.get(each.attempt)) for each in found]


def _cost(attempt: AttemptSummary, following: AttemptSummary) -> AttemptCost:
    """What came of it that this one followed."""
    return AttemptCost(
        repeated_steps=max(attempt.last_step - following.first_step, 0),
        pause_s=max(following.began - attempt.heard, 0.0),
    )


def _read(store: Store, run: RunPaths, claim: Claim) -> Words:
    paths = run.attempt(claim.attempt)
    return Words(
        result=read_record_if_there(store, paths.result, AttemptResult),
        progress=read_record_if_there(store, paths.progress, Progress),
        notice=read_record_if_there(store, paths.notice, Notice),
    )


def _attempt(claim: Claim, left: Words, *, has_successor: bool) -> AttemptSummary:
    first = claim.start.step if claim.start else 0
    steps = [first]
    heard = [claim.claimed]
    if left.progress is not None:
        first = left.progress.started_at_step
        steps = [first, left.progress.step]
        heard.append(left.progress.time)
    if left.result is not None:
        steps.append(left.result.steps)
        heard.append(left.result.ended)
    failure = left.result.failure if left.result else None
    return AttemptSummary(
        attempt=claim.attempt,
        began=claim.claimed,
        heard=max(heard),
        first_step=first,
        last_step=max(steps),
        ending=_ending(claim, left.result, has_successor=has_successor),
        reason=_reason(failure, left.notice),
        category=failure.category if failure else None,
        workers=claim.workers,
        cluster=claim.cluster,
    )


def _ending(claim: Claim, result: AttemptResult | None, *, has_successor: bool) -> Ending:
    if claim.abandoned:
        return "abandoned"
    if result is None:
        return "killed" if has_successor else "open"
    return "resized" if result.was_resized else result.status


def _reason(failure: Failure | None, notice: Notice | None) -> str:
    if failure is not None:
        return one_line(failure.message.partition("\n")[0])
    return notice.reason if notice else ""
