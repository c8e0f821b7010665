"""What a driver in a cluster does about the attempts before its own, and about the next one."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace

from footplate.errors import FootplateError, StoreError
from footplate.spec import Job
from footplate.store import AttemptResult, RunPaths, Store, to_json
from footplate.tracking import experiment_name, sync, tracking_uri
from footplate.train.attempt import Attempt
from footplate.train.past import read_past
from footplate.train.recovery import Decision, PastAttempt, decide

__all__ = ["after_attempt", "already_ended", "pause"]

# A store that took the claim is no wrong setting: worth waiting for, before the run is given up.
_STORE_PATIENCE_S = 600.0
_STORE_POLL_S = 5.0


def already_ended(store: Store, run: RunPaths, job: Job) -> AttemptResult | None:
    """
    How a run has ended for good, if it has; otherwise an attempt may be made.

    The operator starts a driver again whenever the head was lost, also when the driver before
    it had just said how the run ended, or never gets far enough to say anything.

    Raises:
        StoreError: If the store does not tell.
    """
    past = read_past(store, run)
    decision = decide(past, cluster=_cluster(), now=time.time())
    if decision.action == "stop":
        return past[-1].result
    if decision.action != "give_up":
        return None
    newest = past[-1]
    ended = newest.result or AttemptResult(
        status="failed", started=newest.claim.claimed, ended=time.time()
    )
    ended = ended.model_copy(update={"failure": decision.failure, "goes_on": False})
    store.put(run.attempt(newest.claim.attempt).result, to_json(ended))
    if (uri := tracking_uri(job)) is not None:
        with suppress(FootplateError):  # what is missing there can be sent later
            sync(store, run, uri=uri, experiment=experiment_name(job))
    return ended


def after_attempt(attempt: Attempt, result: AttemptResult) -> tuple[AttemptResult, float]:
    """
    What follows an attempt that failed.

    Returns:
        The result, saying whether the run goes on, and how many seconds to wait before it does.
    """
    try:
        _await_store(attempt)
        decision = _decision(attempt, result)
    except StoreError as error:
        attempt.note(f"does not go on, for the store does not answer: {error.message}")
        return result, 0.0
    if decision.failure is not None:
        result = result.model_copy(update={"failure": decision.failure})
    return result.model_copy(update={"goes_on": decision.action == "go_on"}), decision.pause_s


def pause(attempt: Attempt, seconds: float) -> None:
    """Wait before the next attempt, and say so."""
    later = f" in {seconds:g} s" if seconds else ""
    attempt.note(f"goes on by itself{later}: what happened is nobody's mistake")
    time.sleep(seconds)


def _decision(attempt: Attempt, result: AttemptResult) -> Decision:
    past = read_past(attempt.store, attempt.run)
    if past[-1].claim.attempt != attempt.claim.attempt:
        return Decision(action="leave")
    own: PastAttempt = replace(past[-1], result=result)
    return decide([*past[:-1], own], cluster=_cluster(), now=time.time())


def _await_store(attempt: Attempt) -> None:
    """Wait until the store answers again, within bounds."""
    deadline = time.monotonic() + _STORE_PATIENCE_S
    while True:
        try:
            attempt.store.size(attempt.paths.claim)
        except StoreError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_STORE_POLL_S)
        else:
            return


def _cluster() -> str | None:
    return os.environ.get("RAY_CLUSTER_NAME")
