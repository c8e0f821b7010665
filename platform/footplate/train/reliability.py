"""How often a run fails and how long it takes to recover, as far as its past tells."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from footplate.spec import Job
from footplate.store import (
    AttemptResult,
    Claim,
    Progress,
    RunPaths,
    SaveInterval,
    Store,
    read_claims,
    read_record_if_there,
)
from footplate.train.recovery import was_lost

__all__ = ["Reliability", "read_reliability", "unknown_reliability"]

# Of the attempts before, so many are looked at.
_ENOUGH = 20
# Who comes back later than that has waited for machines, which no saving can change.
_LONGEST_RESTART_S = 1800.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Reliability:
    """
    What an attempt knows of those before it; plain values, since it travels to the ranks.

    Attributes:
        failures: How many of them were ended by their machines.
        observed_s: How long they lasted in all.
        began: When this one was claimed, seconds since the epoch.
        down_since: When the one before it was lost; else when this one was claimed.
        pods: Worker pods.
        interval: What the newest of them chose, as a dictionary; empty if none did.
    """

    failures: int
    observed_s: float
    began: float
    down_since: float
    pods: int
    interval: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The form that travels."""
        return asdict(self)


def unknown_reliability(job: Job) -> Reliability:
    """Of a run without a past that begins now."""
    now = time.time()
    return Reliability(
        failures=0,
        observed_s=0.0,
        began=now,
        down_since=now,
        pods=job.workers.count,
        interval={},
    )


def read_reliability(store: Store, run: RunPaths, claim: Claim, *, pods: int) -> Reliability:
    """
    What the store tells of the attempts before one.

    Args:
        claim: Of that one.
        pods: Worker pods that it has.

    Raises:
        StoreError: If the store does not tell.
    """
    claims = [each for each in read_claims(store, run) if each.attempt < claim.attempt]
    past = [each for each in claims if not each.abandoned][-_ENOUGH:]
    lives = [_life(store, run, each) for each in past]
    chosen = [_interval(store, run, each) for each in past]
    down_since = claim.claimed
    if past and lives[-1].lost and past[-1].cluster == claim.cluster:
        down_since = max(lives[-1].ended, claim.claimed - _LONGEST_RESTART_S)
    return Reliability(
        failures=sum(life.lost for life in lives),
        observed_s=sum(life.ended - life.began for life in lives),
        began=claim.claimed,
        down_since=min(down_since, claim.claimed),
        pods=pods,
        interval=next((each.model_dump() for each in reversed(chosen) if each), {}),
    )


@dataclass(frozen=True, slots=True)
class _Life:
    began: float
    ended: float
    lost: bool


def _life(store: Store, run: RunPaths, claim: Claim) -> _Life:
    paths = run.attempt(claim.attempt)
    result = read_record_if_there(store, paths.result, AttemptResult)
    if result is not None:
        return _Life(claim.claimed, max(result.ended, claim.claimed), was_lost(result))
    progress = read_record_if_there(store, paths.progress, Progress)
    ended = progress.time if progress else claim.claimed
    return _Life(claim.claimed, max(min(ended, time.time()), claim.claimed), lost=True)


def _interval(store: Store, run: RunPaths, claim: Claim) -> SaveInterval | None:
    return read_record_if_there(store, run.attempt(claim.attempt).interval, SaveInterval)
