"""What a driver in a cluster does about the attempts before its own, and about the next one."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from footplate.checkpoints.integrity import mark_damaged, verify
from footplate.errors import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointGoneError,
    FootplateError,
    StoreError,
    WorkerLostError,
)
from footplate.spec import Job
from footplate.store import (
    AttemptResult,
    CheckpointName,
    Failure,
    Notice,
    RunPaths,
    Store,
    read_record_if_there,
    to_json,
    was_refused,
)
from footplate.tracking import experiment_name, sync, tracking_uri
from footplate.train.attempt import Attempt
from footplate.train.growth import is_resize
from footplate.train.past import read_past
from footplate.train.recovery import Decision, PastAttempt, decide

__all__ = [
    "after_attempt",
    "after_stop",
    "already_ended",
    "await_store",
    "pause",
    "settle_damage",
]

log = logging.getLogger(__name__)

# An outage is worth waiting for, before the run is given up.
_STORE_PATIENCE_S = 600.0
_STORE_POLL_S = 5.0
# A drained head ends within the grace period of its pod, which is longer than the drain.
_AFTER_DEADLINE_S = 60.0


def already_ended(store: Store, run: RunPaths, job: Job) -> AttemptResult | None:
    """
    How a run has ended for good, if it has; otherwise an attempt may be made.

    The operator starts a driver again whenever the head was lost, also when the driver before
    it had just said how the run ended, or never gets far enough to say anything. A run that its
    user has cancelled has ended, however far it is.

    Raises:
        StoreError: If the store does not tell.
    """
    past = read_past(store, run)
    if store.size(run.cancelled) is not None:
        ended = _cancelled(past)
    else:
        decision = decide(past, cluster=_cluster(), now=time.time())
        if decision.action == "stop":
            return past[-1].result
        if decision.action != "give_up":
            return None
        ended = _given_up(past[-1], decision.failure)
    if past and ended != past[-1].result:
        _write_down(store, run, past[-1], ended, job)
    return ended


def after_attempt(attempt: Attempt, result: AttemptResult) -> tuple[AttemptResult, float]:
    """
    What follows an attempt that failed.

    Returns:
        The result, saying whether the run goes on, and how many seconds to wait before it does.
    """
    try:
        await_store(attempt.store, attempt.run, has_worked=True)
        result = settle_damage(attempt, result)
        if result.goes_on:
            return result, 0.0
        decision = _decision(attempt, result)
    except StoreError as error:
        attempt.note(f"does not go on, for the store does not answer: {error.message}")
        return result, 0.0
    if decision.failure is not None:
        result = result.model_copy(update={"failure": decision.failure})
    return result.model_copy(update={"goes_on": decision.action == "go_on"}), decision.pause_s


def after_stop(attempt: Attempt, result: AttemptResult) -> AttemptResult:
    """What follows an attempt that was stopped: another one, if that is to have more workers."""
    try:
        await_store(attempt.store, attempt.run, has_worked=True)
        return result.model_copy(update={"goes_on": is_resize(attempt)})
    except StoreError as error:
        attempt.note(f"does not go on, for the store does not answer: {error.message}")
        return result


def settle_damage(attempt: Attempt, result: AttemptResult) -> AttemptResult:
    """
    Look into it if an attempt has found its checkpoint damaged.

    If it is, it is marked and not chosen again, and the next attempt starts from an older one. If
    it is not, the machine that took it for damaged is to blame: nobody should lose a checkpoint to
    the bad memory of one node.

    Raises:
        StoreError: If the store does not tell, or does not take the mark.
    """
    failure = result.failure
    start = attempt.claim.start
    if failure is None or failure.error != CheckpointDamagedError.__name__ or start is None:
        return result
    if wrong := _wrong(attempt, start):
        mark_damaged(attempt.store, attempt.run, start, wrong[0])
        attempt.note(f"checkpoint {start} is damaged and set aside: {wrong[0]}")
        # What its claim cut off counts again.
        attempt.abandon()
        return result.model_copy(update={"goes_on": True})
    lost = failure.model_copy(
        update={
            "error": WorkerLostError.__name__,
            "category": WorkerLostError.category,
            "exit_code": WorkerLostError.exit_code,
            "message": f"{failure.message}; read again elsewhere, {start} is whole",
            "hint": "Usual cause: bad memory of the machine that this rank was on.",
        }
    )
    return result.model_copy(update={"failure": lost})


def _wrong(attempt: Attempt, name: CheckpointName) -> list[str]:
    """What this process finds wrong with a checkpoint."""
    try:
        return verify(attempt.store, attempt.run, name)
    except CheckpointError as error:
        return [error.message]


def pause(attempt: Attempt, result: AttemptResult, seconds: float) -> None:
    """Wait before the next attempt, and say so."""
    if (head_s := _head_s(attempt)) > seconds:
        attempt.note(f"waits for the end of its pod, at most {head_s:.0f} s")
        time.sleep(head_s)
        return
    if result.failure is not None:
        later = f" in {seconds:g} s" if seconds else ""
        attempt.note(f"goes on by itself{later}: what happened is nobody's mistake")
    time.sleep(seconds)


def _head_s(attempt: Attempt) -> float:
    """
    For how long this process is to wait for its own end.

    The head is being taken away: the driver in the next one goes on. An attempt that this one
    began meanwhile would only be killed.
    """
    try:
        notice = read_record_if_there(attempt.store, attempt.paths.notice, Notice)
    except StoreError:
        return 0.0
    until = notice.deadline(used=()) if notice is not None else None
    return max(until + _AFTER_DEADLINE_S - time.time(), 0.0) if until is not None else 0.0


def await_store(
    store: Store,
    run: RunPaths,
    *,
    has_worked: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """
    Wait until the store of a run answers, within bounds.

    Args:
        has_worked: It has taken something of this process: then it is no wrong setting if it
            refuses now.
        sleep: Waits so many seconds.

    Raises:
        StoreError: If it does not.
    """
    deadline = time.monotonic() + _STORE_PATIENCE_S
    while True:
        try:
            store.size(run.record)
        except StoreError as error:
            is_setting = was_refused(error) and not has_worked
            if is_setting or time.monotonic() > deadline:
                raise
            log.warning("waiting for the store: %s", error.message)
            sleep(_STORE_POLL_S)
        else:
            return


def _cancelled(past: Sequence[PastAttempt]) -> AttemptResult:
    newest = past[-1] if past else None
    if newest is not None and newest.result is not None and not newest.result.goes_on:
        return newest.result
    now = time.time()
    return AttemptResult(
        status="interrupted", started=newest.claim.claimed if newest else now, ended=now
    )


def _given_up(newest: PastAttempt, failure: Failure | None) -> AttemptResult:
    ended = newest.result or AttemptResult(
        status="failed", started=newest.claim.claimed, ended=time.time()
    )
    return ended.model_copy(update={"failure": failure, "goes_on": False})


def _write_down(
    store: Store, run: RunPaths, newest: PastAttempt, ended: AttemptResult, job: Job
) -> None:
    """Say in the place of a driver that could not how the run has ended."""
    store.put(run.attempt(newest.claim.attempt).result, to_json(ended))
    if (uri := tracking_uri(job)) is not None:
        with suppress(FootplateError):  # what is missing there can be sent later
            sync(store, run, uri=uri, experiment=experiment_name(job))


def _decision(attempt: Attempt, result: AttemptResult) -> Decision:
    past = read_past(attempt.store, attempt.run)
    if past[-1].claim.attempt != attempt.claim.attempt:
        return Decision(action="leave")
    is_gone = result.failure is not None and result.failure.error == CheckpointGoneError.__name__
    if is_gone and attempt.claim.start is not None:
        # Whoever removed it saved something newer first, which is for the next claim. That is not
        # so of a checkpoint of another run.
        attempt.abandon()
        return Decision(action="go_on")
    own: PastAttempt = replace(past[-1], result=result)
    return decide([*past[:-1], own], cluster=_cluster(), now=time.time())


def _cluster() -> str | None:
    return os.environ.get("RAY_CLUSTER_NAME")
