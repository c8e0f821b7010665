"""What stands in the store about the attempts of a run that have ended."""

from __future__ import annotations

from footplate.checkpoints import counting
from footplate.store import (
    AttemptResult,
    Claim,
    Progress,
    RunPaths,
    Store,
    read_claims,
    read_record_if_there,
)
from footplate.train.own_checkpoints import newest_own_checkpoint
from footplate.train.recovery import PastAttempt

__all__ = ["had_workers", "read_past"]

# More than the policy ever counts.
_ENOUGH = 5
_BEFORE_TRAINING = ("preparing", "starting")


def read_past(store: Store, run: RunPaths) -> list[PastAttempt]:
    """
    The newest few attempts of a run, oldest first, abandoned ones left out.

    Raises:
        StoreError: If the store does not tell.
    """
    claims = [claim for claim in read_claims(store, run) if not claim.abandoned]
    if not claims:
        return []
    names = counting(store, run)
    # What each attempt had reached when its successor began, the newest one until now.
    reached = [_step(claim) for claim in claims[1:]] + [names[-1].step if names else 0]
    pairs = list(zip(claims, reached, strict=True))[-_ENOUGH:]
    return [_past(store, run, claim, step) for claim, step in pairs]


def had_workers(store: Store, run: RunPaths, claim: Claim) -> bool:
    """Whether an earlier attempt in the same RayCluster came to train."""
    earlier = (
        read_record_if_there(store, run.attempt(other.attempt).progress, Progress)
        for other in read_claims(store, run)
        if other.cluster == claim.cluster and other.attempt < claim.attempt
    )
    return any(each is not None and each.stage not in _BEFORE_TRAINING for each in earlier)


def _past(store: Store, run: RunPaths, claim: Claim, reached: int) -> PastAttempt:
    paths = run.attempt(claim.attempt)
    has_own = bool(claim.spec.get("command")) and newest_own_checkpoint(store, paths) is not None
    return PastAttempt(
        claim=claim,
        result=read_record_if_there(store, paths.result, AttemptResult),
        progressed=has_own or reached > _step(claim),
        has_saved=has_own or reached > 0,
    )


def _step(claim: Claim) -> int:
    return claim.start.step if claim.start else 0
