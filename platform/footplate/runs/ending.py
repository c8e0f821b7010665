"""How a run ended, and how one is about to end."""

from __future__ import annotations

from footplate.runs.deployment import Deployment
from footplate.runs.driver_message import driver_end
from footplate.runs.fields import condition, integer, string, timestamp
from footplate.runs.phase import EXIT_CANCELLED, EXIT_DELETED, Finding, Phase
from footplate.runs.pod_events import last_trouble
from footplate.runs.snapshot import Snapshot
from footplate.runs.starting import trouble_of
from footplate.runs.text import duration, one_line, saved_step
from footplate.runs.waiting import mark_time, signed
from footplate.store import INTERRUPTED, AttemptResult

__all__ = ["ended", "leaving"]

_EXIT_INVALID = 2
_EXIT_NOT_STARTED = 19


def ended(snapshot: Snapshot, now: float) -> Finding | None:
    """The end of a run; None if it has not ended."""
    deployment = snapshot.deployment
    if deployment is Deployment.VALIDATION_FAILED:
        return _invalid(snapshot)
    if deployment is Deployment.COMPLETE and snapshot.job_status == "SUCCEEDED":
        return _succeeded(snapshot, snapshot.current_result())
    if deployment in (Deployment.COMPLETE, Deployment.FAILED):
        return _failed_or_cancelled(snapshot, now)
    if snapshot.is_deleted:
        return _deleted(snapshot)
    finished = condition(snapshot.workload, "Finished")
    if finished is not None and finished.is_true and finished.reason == "FailedToStart":
        why = f"Kueue cannot start it: {one_line(finished.message) or finished.reason}"
        return Finding(Phase.FAILED, why, finished.since, _EXIT_NOT_STARTED)
    return None


def leaving(snapshot: Snapshot) -> str:
    """Who is about to end a run that has not ended; empty if nobody is."""
    going = timestamp(snapshot.rayjob, "metadata", "deletionTimestamp") is not None
    if mark := snapshot.cancelled_mark:
        again = f"not deleted yet; footplate cancel {snapshot.name} finishes that"
        return f"{signed('cancelled', mark)}: {'its pods are ending' if going else again}"
    return "the RayJob is being deleted, its pods are ending" if going else ""


def _invalid(snapshot: Snapshot) -> Finding:
    message = one_line(string(snapshot.rayjob, "status", "message")) or "KubeRay refuses the RayJob"
    if snapshot.is_deleted:
        return Finding(Phase.FAILED, message, _end_time(snapshot), _EXIT_INVALID)
    holds = " (it holds its quota until then)" if snapshot.queue else ""
    reason = f"{message}; delete it: footplate delete {snapshot.name}{holds}"
    return Finding(Phase.FAILED, reason, _end_time(snapshot), _EXIT_INVALID)


def _succeeded(snapshot: Snapshot, result: AttemptResult | None) -> Finding:
    if result is None:
        return Finding(Phase.SUCCEEDED, "succeeded: the driver ended well", _end_time(snapshot), 0)
    parts = [f"succeeded after step {result.steps}"]
    if (loss := result.metrics.get("loss")) is not None:
        parts.append(f"loss {loss:.4f}")
    if (saved := saved_step(result.checkpoint)) is not None:
        parts.append(f"last checkpoint step {saved}")
    parts.append(f"last attempt took {duration(result.ended - result.started)}")
    return Finding(Phase.SUCCEEDED, ", ".join(parts), _end_time(snapshot), 0)


def _failed_or_cancelled(snapshot: Snapshot, now: float) -> Finding:
    if snapshot.is_cancelled:
        return _cancelled(snapshot)
    if snapshot.job_status == "STOPPED" and snapshot.is_deleted:
        return _deleted(snapshot)
    reason, exit_code = _why_failed(snapshot, now)
    return Finding(Phase.FAILED, reason, _end_time(snapshot), exit_code)


def _why_failed(snapshot: Snapshot, now: float) -> tuple[str, int]:
    result = snapshot.current_result()
    if result is not None and result.status != "succeeded":
        return _told_by_store(result)
    why = string(snapshot.rayjob, "status", "reason")
    if why == "PreRunningDeadlineExceeded":
        return _not_started(snapshot, now), _EXIT_NOT_STARTED
    if why == "DeadlineExceeded":
        limit = integer(snapshot.rayjob, "spec", "activeDeadlineSeconds")
        return f"ran longer than {limit} s (activeDeadlineSeconds)", 1
    if snapshot.job_status == "STOPPED":
        return "stopped by someone else, through Ray's dashboard or command line", 1
    end = driver_end(string(snapshot.rayjob, "status", "message"), why)
    joint = ": " if end.exit_code is None else " with "
    return f"failed{joint}{end}", end.exit_code or 1


def _told_by_store(result: AttemptResult) -> tuple[str, int]:
    failure = result.failure
    if failure is None:
        return (
            f"stopped after step {result.steps}, before its last",
            result.exit_code or INTERRUPTED,
        )
    step = failure.step if failure.step is not None else result.steps
    message = one_line(failure.message.replace(f" after step {step}", "", 1), 500)
    return f"failed after step {step}: {message or failure.error}", failure.exit_code or 1


def _not_started(snapshot: Snapshot, now: float) -> str:
    limit = integer(snapshot.rayjob, "spec", "preRunningDeadlineSeconds")
    within = f" within {limit} s (preRunningDeadlineSeconds)" if limit else " in time"
    present = [str(one) for one in trouble_of(snapshot, now) if not one.pod.is_ending]
    cluster = string(snapshot.rayjob, "status", "rayClusterName")
    last = present[0] if present else last_trouble(cluster, snapshot.events)
    return f"did not start{within}: {last or _last_seen(snapshot)}"


def _last_seen(snapshot: Snapshot) -> str:
    head = condition(snapshot.cluster, "HeadPodReady")
    if head is None:
        return "its pods are gone, and nothing is known of them"
    # The RayCluster counts all groups together.
    ready = integer(snapshot.cluster, "status", "readyWorkerReplicas")
    wanted = snapshot.workers_wanted + snapshot.data_workers_wanted
    return f"head pod {'was' if head.is_true else 'was not'} ready, workers {ready}/{wanted}"


def _cancelled(snapshot: Snapshot) -> Finding:
    mark = snapshot.cancelled_mark
    reason = signed("cancelled", mark) if mark else "cancelled by its user"
    when = mark_time(mark)
    since = when if when is not None else _end_time(snapshot)
    return Finding(Phase.CANCELLED, reason + _got_to(snapshot), since, EXIT_CANCELLED)


def _deleted(snapshot: Snapshot) -> Finding:
    result = snapshot.current_result()
    if result is not None and result.status == "succeeded":
        return _succeeded(snapshot, result)
    if snapshot.is_cancelled:
        return _cancelled(snapshot)
    if result is not None and result.status == "failed" and not result.goes_on:
        reason, exit_code = _told_by_store(result)
        return Finding(Phase.FAILED, reason, result.ended, exit_code)
    reason = "its RayJob was deleted by someone else before it ended"
    return Finding(Phase.DELETED, reason + _got_to(snapshot), _end_time(snapshot), EXIT_DELETED)


def _got_to(snapshot: Snapshot) -> str:
    progress = snapshot.progress
    if progress is None or not progress.step:
        return ""
    saved = saved_step(progress.checkpoint)
    kept = f", last checkpoint step {saved}" if saved is not None else ""
    return f"; it got to step {progress.step}{kept}"


def _end_time(snapshot: Snapshot) -> float | None:
    end = timestamp(snapshot.rayjob, "status", "endTime")
    if end is None and snapshot.is_deleted:
        end = timestamp(snapshot.rayjob, "metadata", "deletionTimestamp")
    if end is None and (result := snapshot.current_result()) is not None:
        end = result.ended
    return end
