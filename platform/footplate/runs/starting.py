"""From a cluster that comes up to training: what is done, and what it waits for."""

from __future__ import annotations

import re

from footplate.runs.deployment import Deployment
from footplate.runs.driver_message import driver_end
from footplate.runs.fields import condition, field, integer, string, timestamp
from footplate.runs.phase import Finding, Phase
from footplate.runs.pod import Pod
from footplate.runs.snapshot import Snapshot
from footplate.runs.text import after_failures, counted, described, elapsed, one_line
from footplate.runs.trouble import Trouble, troubles

__all__ = ["running", "trouble_of"]

# KubeRay and Kueue's webhooks race at a start; what fails for longer, or again and again, counts.
_CREATION_PATIENCE_S = 30.0
_CREATION_TRIES = 3
# A preempted job has its grace period to save, and its pods hold their GPUs that long.
_GRACE_S = 120.0
_SILENCE_S = 60.0
_STARTING_STAGES = {"preparing": "preparing data", "starting": "starting the workers"}
_POD_NAME = re.compile(r'^[Pp]ods? "[^"]*" is ')
_BENIGN_HEAD = frozenset({"", "ContainerCreating", "ContainersNotReady", "HeadPodNotFound"})


def running(snapshot: Snapshot, now: float) -> Finding:
    """Whatever KubeRay does with a run that it was told to run."""
    training = _training(snapshot, now) if snapshot.deployment is Deployment.RUNNING else None
    if training is not None:
        driver = timestamp(snapshot.rayjob, "status", "rayJobInfo", "startTime")
        since = driver if driver is not None else snapshot.started
        return Finding(Phase.TRAINING, training + _without_workload(snapshot), since)
    reason = _starting(snapshot, now) + _without_workload(snapshot)
    return Finding(Phase.STARTING, reason, snapshot.started)


def trouble_of(snapshot: Snapshot, now: float) -> list[Trouble]:
    """What is wrong with the pods of the newest RayCluster, and with those that are missing."""
    return troubles(snapshot.current_pods(), snapshot.nodes, snapshot.events, now)


def _training(snapshot: Snapshot, now: float) -> str | None:
    """What the driver says that it does; None before the training function is at work."""
    result = snapshot.current_result()
    if result is not None and result.goes_on:
        return None
    if result is not None:
        what = f"the driver has ended ({result.status} after step {result.steps})"
        return f"{what}; KubeRay has not taken note yet"
    if snapshot.job_status != "RUNNING":
        return None
    progress = snapshot.current_progress()
    if progress is None and "store" in snapshot.unseen:
        return _with_trouble(
            "running; the step is not known: its store was not read", snapshot, now
        )
    if progress is None or progress.stage in _STARTING_STAGES:
        return None
    silent_s = now - progress.time
    if not silent_s > _SILENCE_S:
        lost = [f"; {one}" for one in trouble_of(snapshot, now) if one.is_lost]
        return described(progress) + "".join(lost[:1])
    told = f"{described(progress, is_fresh=False)}, no progress reported for {elapsed(silent_s)}"
    return _with_trouble(told, snapshot, now)


def _with_trouble(told: str, snapshot: Snapshot, now: float, *, only_trouble: bool = False) -> str:
    if found := trouble_of(snapshot, now):
        return f"{told}; {found[0]}"
    if "pods" in snapshot.unseen or only_trouble:
        return told
    if not snapshot.has_head:
        return f"{told}; its head pod is gone, and the driver starts again with the next"
    return f"{told}; {snapshot.workers_told}" if snapshot.lacks_workers else told


def _starting(snapshot: Snapshot, now: float) -> str:
    deployment = snapshot.deployment
    if deployment is Deployment.RETRYING:
        return _retrying(snapshot)
    if deployment is Deployment.WAITING:
        return "the cluster is ready and waits for spec.jobId (InteractiveMode)"
    if deployment is Deployment.UNKNOWN:
        said = string(snapshot.rayjob, "status", "jobDeploymentStatus")
        message = string(snapshot.rayjob, "status", "message")
        return f"KubeRay says {one_line(f'{said}: {message}' if message else said)}"
    told = _driver(snapshot, now) if deployment is Deployment.RUNNING else _cluster(snapshot, now)
    return after_failures(told, integer(snapshot.rayjob, "status", "failed"))


def _retrying(snapshot: Snapshot) -> str:
    failed = integer(snapshot.rayjob, "status", "failed")
    message, reason = (string(snapshot.rayjob, "status", key) for key in ("message", "reason"))
    end = driver_end(message, reason)
    return f"{counted(failed, 'failed attempt')}, KubeRay starts the next: {end}"


def _driver(snapshot: Snapshot, now: float) -> str:
    if snapshot.job_status in ("SUCCEEDED", "FAILED", "STOPPED"):
        return f"the driver has ended ({snapshot.job_status}); KubeRay has not taken note yet"
    head = "head pod is ready" if snapshot.has_head else "head pod is not ready"
    told = f"{head}; {snapshot.workers_told}; {_driver_stage(snapshot, now)}"
    return _with_trouble(told, snapshot, now, only_trouble=True)


def _driver_stage(snapshot: Snapshot, now: float) -> str:
    progress, result = snapshot.current_progress(), snapshot.current_result()
    if snapshot.job_status != "RUNNING":
        return "driver is starting" if snapshot.job_status else "driver is being submitted"
    draining = any(pod.is_head and pod.is_ending and pod.is_live for pod in snapshot.current_pods())
    if not snapshot.has_head and not draining:
        return "driver starts again once it is"
    if result is not None and result.goes_on:
        why = f": {one_line(result.failure.message)}" if result.failure else ""
        return f"the attempt ended after step {result.steps}, the next one follows{why}"
    if progress is None or progress.stage not in _STARTING_STAGES:
        return "driver is running and has reported nothing yet"
    silent_s = now - progress.time
    lasts = f" for {elapsed(silent_s)}" if silent_s > _SILENCE_S else ""
    detail = f" ({one_line(progress.detail)})" if progress.detail else ""
    return f"{_STARTING_STAGES[progress.stage]}{detail}{lasts}"


def _cluster(snapshot: Snapshot, now: float) -> str:
    if refused := _not_created(snapshot, now):
        return refused
    found = trouble_of(snapshot, now)
    if found:
        return _waiting_for(found, snapshot, now)
    heads = [pod for pod in snapshot.current_pods() if pod.is_head]
    if not heads:
        return _head_condition(snapshot)
    if not snapshot.has_head:
        return f"waiting for the head pod: {_coming_up(heads[0])}"
    told = f"head pod is ready; {snapshot.workers_told}"
    return told if snapshot.lacks_workers else f"{told}; driver is being submitted"


def _coming_up(head: Pod) -> str:
    if head.phase == "Running":
        return "it is starting Ray"
    return "its containers are being created" if head.node else "it is being scheduled"


def _waiting_for(found: list[Trouble], snapshot: Snapshot, now: float) -> str:
    first = next((one for one in found if not one.is_predicate or one.is_lost), found[0])
    if first.is_predicate:
        return str(first)
    if first.pod.is_head:
        return f"waiting for the head pod: {first.what}"
    if held := _held_by_others(first, snapshot, now):
        return held
    if first.pod.is_data_worker:
        return f"waiting for {first}"
    ready, wanted = snapshot.workers_ready, snapshot.workers_wanted
    missing = f"{max(1, wanted - ready)} of {counted(wanted, 'worker pod')}"
    return f"waiting for {missing}: {first.what}"


def _held_by_others(trouble: Trouble, snapshot: Snapshot, now: float) -> str:
    """Kueue gives quota to the next before the pods of the last have ended; then nothing fits."""
    lacking = re.search(r"Insufficient ([\w./-]+\w)", trouble.what)
    if not lacking:
        return ""
    what = "GPUs" if "gpu" in lacking[1] else lacking[1]
    if ending := [pod for pod in snapshot.ending_pods(now) if pod.is_ending]:
        return f"waiting for the {what} of its earlier pods: {len(ending)} of them are still ending"
    admission = condition(snapshot.workload, "Admitted")
    if admission is None or admission.since is None or now - admission.since > _GRACE_S:
        return ""
    if any("Pending the preemption" in string(event, "message") for event in snapshot.events):
        return f"waiting for the {what} of preempted jobs: their pods are still ending"
    return ""


def _not_created(snapshot: Snapshot, now: float) -> str:
    failure = condition(snapshot.cluster, "ReplicaFailure")
    if failure is None or not failure.is_true:
        return ""
    lasts = failure.since is not None and now - failure.since >= _CREATION_PATIENCE_S
    tries = sum(
        max(1, integer(event, "count"))
        for event in snapshot.events
        if string(event, "reason").startswith("FailedToCreate")
        and string(event, "involvedObject", "name") == _cluster_name(snapshot)
    )
    if not lasts and tries < _CREATION_TRIES:
        return ""
    which = "the head pod" if "Head" in failure.reason else "worker pods"
    # The name in it is a new one with every try.
    message = one_line(_POD_NAME.sub("", failure.message.removeprefix(failure.reason).lstrip()))
    return f"KubeRay cannot create {which}: {message or failure.reason}"


def _cluster_name(snapshot: Snapshot) -> str:
    return string(snapshot.rayjob, "status", "rayClusterName")


def _head_condition(snapshot: Snapshot) -> str:
    """What the RayCluster says of its head, where the pods themselves are not to be seen."""
    head = condition(snapshot.cluster, "HeadPodReady")
    if head is None or (not head.is_true and head.reason in _BENIGN_HEAD):
        starts = "pods" in snapshot.unseen and field(snapshot.cluster, "status") is not None
        return "waiting for the head pod" if starts else "KubeRay is creating the pods"
    if head.is_true:
        return f"head pod is ready; {snapshot.workers_told}"
    said = head.message.rpartition("; ")[2].partition(": ")[2] or head.message
    return f"waiting for the head pod: {one_line(said) or head.reason} ({head.reason})"


def _without_workload(snapshot: Snapshot) -> str:
    if not snapshot.queue or snapshot.workload is not None or "workload" in snapshot.unseen:
        return ""
    return "; its Workload is gone, so Kueue is about to stop it"
