"""Why a run is not running yet, or no longer: from submission to what KubeRay begins with."""

from __future__ import annotations

from collections.abc import Sequence

from footplate.render import identity_name
from footplate.runs import queueing
from footplate.runs.deployment import Deployment
from footplate.runs.fields import Condition, condition, integer, items, string, timestamp
from footplate.runs.phase import EXIT_DEACTIVATED, Finding, Phase
from footplate.runs.pod import Pod
from footplate.runs.snapshot import Snapshot
from footplate.runs.text import after_failures, counted, elapsed, moment, one_line

__all__ = ["admitted", "incomplete", "mark_time", "queued", "signed", "stopped"]

# Until then a submission may be on its way: Kueue and the client need about a second.
_PATIENCE_S = 10.0
# So many of those ahead in the queue are named.
_NAMED = 3
# KubeRay acts within a second; after this long its operator is worth a look.
_OPERATOR_PATIENCE_S = 30.0
_BEFORE_PODS = (Deployment.NEW, Deployment.SUSPENDED, Deployment.SUSPENDING)
_NOT_RUNNING = (*_BEFORE_PODS, Deployment.INITIALIZING)


def incomplete(snapshot: Snapshot, now: float) -> Finding | None:
    """A submission that ended half-way: its pods will never know who they are."""
    if snapshot.deployment not in _NOT_RUNNING or snapshot.has_identity is True:
        return None
    if snapshot.has_identity is None and not _pods_miss_identity(snapshot):
        return None
    if snapshot.age(now) < _PATIENCE_S:
        reason = "being submitted: its ConfigMap is not there yet"
    else:
        reason = (
            "the submission was interrupted: its ConfigMap is missing; run footplate submit again"
        )
    return Finding(Phase.INCOMPLETE, reason, snapshot.created)


def stopped(snapshot: Snapshot, now: float) -> Finding | None:
    """Paused by its user, put out of the queue by others, or on the way to it."""
    evicted, mark = snapshot.eviction, snapshot.suspended_mark
    if snapshot.is_deactivated:
        by_user = mark and (evicted is None or evicted.reason in ("", "Deactivated"))
        who = signed("suspended", mark) if by_user else queueing.deactivation(evicted)
        phase = Phase.SUSPENDED if by_user else Phase.DEACTIVATED
        return _paused(snapshot, phase, who, now)
    if evicted is not None and snapshot.has_quota:
        why = f"{queueing.eviction(evicted)}: {_saving(snapshot, now)}"
        return Finding(Phase.SUSPENDING, why, evicted.since)
    if not snapshot.queue and snapshot.is_suspended:
        if not mark and snapshot.age(now) < _PATIENCE_S:
            return Finding(Phase.INCOMPLETE, "being submitted: not let start yet", snapshot.created)
        unsigned = "suspended, and nobody has signed for it (spec.suspend is true)"
        who = signed("suspended", mark) if mark else unsigned
        return _paused(snapshot, Phase.SUSPENDED, who, now)
    goes = snapshot.deployment in (Deployment.SUSPENDING, Deployment.SUSPENDED)
    if goes and snapshot.has_quota and snapshot.ending_pods(now):
        return Finding(Phase.SUSPENDING, _saving(snapshot, now))
    return None


def queued(snapshot: Snapshot, now: float) -> Finding | None:
    """Not let in by Kueue."""
    if not snapshot.queue or snapshot.deployment not in _NOT_RUNNING or snapshot.is_admitted:
        return None
    since = snapshot.created
    if snapshot.workload is None:
        if not snapshot.is_suspended:
            return None
        return Finding(Phase.QUEUED, _without_workload(snapshot, now), since)
    quota = condition(snapshot.workload, "QuotaReserved")
    if quota is not None and quota.is_true:
        return Finding(Phase.QUEUED, _checks(snapshot), quota.since)
    since = quota.since if quota is not None and quota.since is not None else since
    return Finding(Phase.QUEUED, _pending(snapshot, quota, now), since)


def admitted(snapshot: Snapshot, now: float) -> Finding | None:
    """Free to start, and KubeRay has not begun."""
    if snapshot.deployment not in _BEFORE_PODS:
        return None
    letting_in = condition(snapshot.workload, "Admitted")
    since = letting_in.since if letting_in and letting_in.is_true else snapshot.created
    by = string(snapshot.workload, "status", "admission", "clusterQueue")
    let_in = f"admitted by ClusterQueue {by}: " if by else ""
    waited = now - since if since is not None else 0.0
    failed = integer(snapshot.rayjob, "status", "failed")
    # Between two lives of a run its admission is old, and says nothing about KubeRay.
    if waited < _OPERATOR_PATIENCE_S or failed > 0 or snapshot.ending_pods(now):
        what = after_failures("KubeRay is about to make its RayCluster", failed)
    else:
        what = f"KubeRay has not acted on it for {elapsed(waited)}; is its operator running?"
    return Finding(Phase.ADMITTED, f"{let_in}{what}", since)


def signed(done: str, mark: str) -> str:
    """``suspended by ada on workstation, 2026-11-29 14:05 UTC`` from the text of a mark."""
    when, _, who = mark.partition(" by ")
    time = mark_time(mark)
    at = moment(time) if time is not None else one_line(when)
    return f"{done} by {one_line(who) or 'somebody'}, {at}"


def mark_time(mark: str) -> float | None:
    """When a mark was set, seconds since the epoch; None if it does not say."""
    return timestamp({"when": mark.partition(" by ")[0]}, "when")


def _pods_miss_identity(snapshot: Snapshot) -> bool:
    """The kubelet says so; this needs no right to read ConfigMaps."""
    missing = f'configmap "{identity_name(snapshot.name)}" not found'
    return any(
        missing in string(status, "state", "waiting", "message")
        for pod in snapshot.current_pods()
        for status in items(pod.object, "status", "containerStatuses")
    )


def _paused(snapshot: Snapshot, phase: Phase, who: str, now: float) -> Finding:
    since = snapshot.eviction.since if snapshot.eviction else mark_time(snapshot.suspended_mark)
    if snapshot.ending_pods(now) or snapshot.deployment not in _BEFORE_PODS:
        return Finding(Phase.SUSPENDING, f"{who}: {_saving(snapshot, now)}", since)
    resume = f"{who}; footplate resume {snapshot.name}"
    if phase is Phase.DEACTIVATED:
        return Finding(phase, f"{resume} lets it in again", since, EXIT_DEACTIVATED)
    return Finding(phase, resume, since)


def _saving(snapshot: Snapshot, now: float) -> str:
    live = snapshot.ending_pods(now) or [pod for pod in snapshot.current_pods() if pod.is_live]
    if not live:
        return "ending"
    runs = "still runs" if len(live) == 1 else "still run"
    return f"saving and ending: {counted(len(live), 'pod')} {runs}"


def _without_workload(snapshot: Snapshot, now: float) -> str:
    if "workload" in snapshot.unseen:
        return f"queued in {snapshot.queue}; why is not known: its Workload cannot be read"
    if snapshot.age(now) < _PATIENCE_S:
        return f"queued in {snapshot.queue}: Kueue has not looked at it yet"
    for group in items(snapshot.rayjob, "spec", "rayClusterSpec", "workerGroupSpecs"):
        if (replicas := integer(group, "replicas")) < 0:
            return f"Kueue has made no Workload for it: a worker group asks for {replicas} replicas"
    return (
        f"Kueue has made no Workload for it in {elapsed(snapshot.age(now))} "
        "(is Kueue running, does it manage RayJobs, are the replica counts valid?)"
    )


def _checks(snapshot: Snapshot) -> str:
    waited_for = [
        f"{string(check, 'name')} ({one_line(string(check, 'message')) or string(check, 'state')})"
        for check in items(snapshot.workload, "status", "admissionChecks")
        if string(check, "state") != "Ready"
    ]
    told = f"admission checks: {', '.join(waited_for)}" if waited_for else "Kueue to admit it"
    return f"queued in {snapshot.queue}: its quota is set aside, waiting for {told}"


def _pending(snapshot: Snapshot, quota: Condition | None, now: float) -> str:
    evicted = snapshot.eviction
    parts = []
    if evicted is not None and not evicted.reason.startswith("Deactivated"):
        parts.append(queueing.eviction(evicted))
    # Right after an eviction Kueue repeats its message instead of what is now waited for.
    message = quota.message if quota is not None else ""
    if evicted is not None and message == evicted.message and parts:
        parts.append(f"queued again in {snapshot.queue}")
    else:
        parts.append(queueing.pending(message, snapshot.queue, snapshot.namespace))
    if snapshot.ahead:
        parts.append(_behind(snapshot.ahead))
    if (again := timestamp(snapshot.workload, "status", "requeueState", "requeueAt")) is not None:
        parts += [f"Kueue tries again in {elapsed(again - now)}"] if again > now else []
    if ending := snapshot.ending_pods(now):
        parts.append(_old_pods(ending, now))
    return "; ".join(parts)


def _behind(ahead: Sequence[str]) -> str:
    """``behind digits``, ``behind digits, textlm and 3 others``."""
    named = ", ".join(ahead[:_NAMED])
    rest = len(ahead) - _NAMED
    return f"behind {named}" + (f" and {counted(rest, 'other')}" if rest > 0 else "")


def _old_pods(ending: list[Pod], now: float) -> str:
    lasts = [pod.ends for pod in ending if pod.ends is not None]
    within = f" within {elapsed(max(lasts) - now)}" if lasts else ""
    ends = "ends" if len(ending) == 1 else "end"
    return f"its {counted(len(ending), 'pod')} {ends}{within}"
