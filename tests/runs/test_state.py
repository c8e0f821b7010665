"""Where a run stands, for what no recorded cluster did."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from footplate.runs.state import Deployment, Phase, RunState, Snapshot, state_of
from footplate.store import AttemptResult, Failure, Notes, Progress

NOW = datetime(2026, 11, 29, 14, 10, tzinfo=UTC).timestamp()
MARK = "2026-11-29T14:05:00Z by alice on workstation"


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(NOW - seconds, UTC).isoformat().replace("+00:00", "Z")


def _condition(kind: str, status: str, reason: str, message: str = "", ago: float = 100) -> Any:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": _ago(ago),
    }


def _rayjob(
    deployment: str = "",
    *,
    queue: str = "team-queue",
    suspend: bool = False,
    marks: dict[str, str] | None = None,
    age: float = 1000,
    **status: Any,
) -> dict[str, Any]:
    group = {"groupName": "workers", "replicas": 2, "numOfHosts": 1}
    return {
        "metadata": {
            "name": "digits",
            "namespace": "team",
            "uid": "uid-1",
            "creationTimestamp": _ago(age),
            "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {},
            "annotations": {f"footplate.dev/{key}": text for key, text in (marks or {}).items()},
        },
        "spec": {
            "suspend": suspend,
            "activeDeadlineSeconds": 3600,
            "preRunningDeadlineSeconds": 1800,
            "rayClusterSpec": {"workerGroupSpecs": [group]},
        },
        "status": {
            "jobDeploymentStatus": deployment,
            "rayClusterName": "digits-abcde",
            "startTime": _ago(500),
            **status,
        },
    }


def _workload(*conditions: Any, active: bool = True, **status: Any) -> dict[str, Any]:
    return {"spec": {"active": active}, "status": {"conditions": list(conditions), **status}}


QUOTA = _condition("QuotaReserved", "True", "QuotaReserved")
ADMITTED = _workload(QUOTA, _condition("Admitted", "True", "Admitted"))
NO_QUOTA = _condition("QuotaReserved", "False", "Pending", "The workload is deactivated")


def _pod(name: str, *, ready: bool = True, cluster: str = "digits-abcde", **more: Any) -> Any:
    metadata = {
        "name": f"{cluster}-{name}",
        "labels": {
            "ray.io/cluster": cluster,
            "ray.io/node-type": "head" if name.startswith("head") else "worker",
        },
    }
    conditions = [
        _condition("Ready", "True" if ready else "False", ""),
        *more.pop("conditions", ()),
    ]
    return {
        "metadata": metadata | more.pop("metadata", {}),
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "conditions": conditions, **more},
    }


PODS = (_pod("head-a"), _pod("workers-worker-b"), _pod("workers-worker-c"))


def _progress(ago: float = 1, **values: Any) -> Progress:
    known = {
        "stage": "training",
        "time": NOW - ago,
        "step": 120,
        "total_steps": 600,
        "metrics": {"loss": 0.1234},
        "samples_per_s": 250.4,
        "eta_s": 185.0,
        "checkpoint": "step-00000100.a0001",
    }
    return Progress.model_validate(known | values)


def _result(status: str, **values: Any) -> AttemptResult:
    known = {"status": status, "started": NOW - 400, "ended": NOW - 10, "steps": 120}
    return AttemptResult.model_validate(known | values)


FAILURE = Failure(
    rank=1,
    step=120,
    time=NOW - 11,
    error="UserCodeError",
    category="user_code",
    message="ValueError on rank 1 after step 120: bad batch\nsecond line",
    exit_code=10,
)


def _state(rayjob: dict[str, Any], **seen: Any) -> RunState:
    return state_of(Snapshot(rayjob=rayjob, **seen), now=NOW)


def _running(job_status: str = "RUNNING") -> dict[str, Any]:
    return _rayjob("Running", jobStatus=job_status)


@pytest.mark.parametrize(
    ("deployment", "phase"),
    [
        ("", Phase.ADMITTED),
        ("Initializing", Phase.STARTING),
        ("Waiting", Phase.STARTING),
        ("Running", Phase.STARTING),
        ("Suspending", Phase.ADMITTED),
        ("Suspended", Phase.ADMITTED),
        ("Retrying", Phase.STARTING),
        ("Complete", Phase.FAILED),
        ("Failed", Phase.FAILED),
        ("ValidationFailed", Phase.FAILED),
        ("Pondering", Phase.STARTING),
    ],
)
def test_every_word_of_kuberay_is_known(deployment: str, phase: Phase) -> None:
    """Each deployment status has its phase, and one of a newer operator is passed on."""
    state = _state(_rayjob(deployment), workload=ADMITTED)
    assert state.phase is phase
    assert state.reason


def test_deployment_lists_what_the_operator_can_say() -> None:
    """What is not listed reads as unknown and never as an error."""
    assert Deployment("Pondering") is Deployment.UNKNOWN
    assert len(Deployment) == 11


def test_training() -> None:
    """The line of a training run has all that people look for."""
    state = _state(_running(), workload=ADMITTED, pods=PODS, progress=_progress(), attempt=2)
    assert state.phase is Phase.TRAINING
    assert state.reason == (
        "training: step 120/600, loss 0.1234, 250 samples/s, ETA 3m05s, last checkpoint step 100"
    )
    assert state.summary == "training 120/600"
    assert (state.step, state.total_steps, state.eta_s, state.attempt) == (120, 600, 185.0, 2)
    assert (state.workers_ready, state.workers_wanted) == (2, 2)


def test_silence_is_told_with_its_cause() -> None:
    """A stale step is shown as one, with what the cluster knows of the pods."""
    lost = _condition("Ready", "Unknown", "NodeStatusUnknown", ago=95)
    node = {"metadata": {"name": "node-1"}, "status": {"conditions": [lost]}}
    pods = (PODS[0] | {"spec": {"nodeName": "node-0"}}, *PODS[1:])
    state = _state(
        _running(), workload=ADMITTED, pods=pods, nodes=[node], progress=_progress(ago=75)
    )
    assert state.reason == (
        "training: step 120/600, loss 0.1234, last checkpoint step 100, no progress reported for "
        "75 s; worker pod digits-abcde-workers-worker-b is on node node-1, which has been lost for "
        "95 s; Kubernetes keeps the pod until the node returns or someone deletes it (footplate "
        "guard does)"
    )


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        (PODS[:2], "no progress reported for 75 s; workers 1/2"),
        (PODS[1:], "its head pod is gone, and the driver starts again with the next"),
    ],
)
def test_silence_names_missing_pods(pods: Any, told: str) -> None:
    """A pod that is not there says nothing itself."""
    state = _state(_running(), workload=ADMITTED, pods=pods, progress=_progress(ago=75))
    assert state.reason.endswith(told)


@pytest.mark.parametrize(
    ("job_status", "progress", "told"),
    [
        ("", None, "driver is being submitted"),
        ("PENDING", None, "driver is starting"),
        ("RUNNING", None, "driver is running and has reported nothing yet"),
        ("RUNNING", _progress(stage="preparing"), "preparing data"),
        ("RUNNING", _progress(stage="starting", ago=90), "starting the workers for 90 s"),
    ],
)
def test_before_the_first_step(job_status: str, progress: Progress | None, told: str) -> None:
    """Between a ready cluster and the first step everything has a name."""
    state = _state(_running(job_status), workload=ADMITTED, pods=PODS[:2], progress=progress)
    assert state.phase is Phase.STARTING
    assert state.reason == f"head pod is ready; workers 1/2; {told}"
    assert state.summary == "starting 1/2"


def test_between_two_attempts() -> None:
    """An attempt that another one follows is not the end of the run."""
    result = _result("failed", failure=FAILURE, goes_on=True)
    seen = {"workload": ADMITTED, "pods": PODS, "progress": _progress(), "result": result}
    state = _state(_running(), **seen)
    assert state.phase is Phase.STARTING
    assert state.reason.endswith(
        "the attempt ended after step 120, the next one follows: ValueError on rank 1 after step "
        "120: bad batch second line"
    )
    assert _state(_running(), is_deleted=True, result=result).phase is Phase.DELETED
    more = _progress(stage="starting", detail="1 of 2 workers are there")
    waiting = _state(_running(), workload=ADMITTED, pods=PODS, progress=more)
    assert waiting.reason.endswith("; starting the workers (1 of 2 workers are there)")


def test_old_progress_is_not_todays() -> None:
    """What an attempt before the newest RayCluster reported is history, not progress."""
    state = _state(_running(), workload=ADMITTED, pods=PODS, progress=_progress(ago=600))
    assert state.phase is Phase.STARTING
    assert state.eta_s is None
    assert (state.step, state.checkpoint) == (120, "step-00000100.a0001")


def test_unreadable_store_hides_the_step_only() -> None:
    """Whoever may not read the store still sees that it runs."""
    state = _state(_running(), workload=ADMITTED, pods=PODS, unseen=frozenset({"store"}))
    assert state.phase is Phase.TRAINING
    assert state.reason == "running; the step is not known: its store was not read"
    assert state.summary == "training"


@pytest.mark.parametrize(
    ("share", "said"),
    [(None, "250 samples/s, ETA"), (0.049, "250 samples/s, ETA"), (0.12, "12% waiting for data")],
)
def test_waiting_for_data_is_said_once_it_matters(share: float | None, said: str) -> None:
    """From a twentieth of the time on people learn that it is not the model that is slow."""
    progress = _progress(data_wait=share)
    state = _state(_running(), workload=ADMITTED, pods=PODS, progress=progress)
    assert said in state.reason


def test_numbers_that_are_none_do_no_harm() -> None:
    """A diverged loss and an endless estimate are shown as what they are."""
    progress = _progress(metrics={"loss": math.nan}, eta_s=math.inf, samples_per_s=math.inf)
    state = _state(_running(), workload=ADMITTED, pods=PODS, progress=progress)
    assert "loss nan, inf samples/s, ETA unknown" in state.reason


def test_lost_workload_of_a_running_job() -> None:
    """Kueue stops what it has no Workload for: better known before it happens."""
    state = _state(_running(), pods=PODS, progress=_progress())
    assert state.phase is Phase.TRAINING
    assert state.reason.endswith("; its Workload is gone, so Kueue is about to stop it")
    unseen = _state(_running(), pods=PODS, progress=_progress(), unseen=frozenset({"workload"}))
    assert "Workload" not in unseen.reason


@pytest.mark.parametrize(
    ("age", "unseen", "reason"),
    [
        (3, frozenset(), "queued in team-queue: Kueue has not looked at it yet"),
        (
            12,
            frozenset(),
            "Kueue has made no Workload for it in 12 s (is Kueue running, does it manage RayJobs, "
            "are the replica counts valid?)",
        ),
        (
            12,
            frozenset({"workload"}),
            "queued in team-queue; why is not known: its Workload cannot be read",
        ),
    ],
)
def test_no_workload(age: float, unseen: frozenset[str], reason: str) -> None:
    """That there is no Workload is a diagnosis once it has had its time, if it was looked for."""
    rayjob = _rayjob("Suspended", suspend=True, age=age)
    state = _state(rayjob, unseen=unseen)
    assert (state.phase, state.reason) == (Phase.QUEUED, reason)


def test_suspended_by_its_user() -> None:
    """A pause is signed, does not end the run, and says how to go on."""
    deactivated = _condition("Evicted", "True", "Deactivated", "The workload is deactivated")
    rayjob = _rayjob("Suspended", suspend=True, marks={"suspended": MARK})
    workload = _workload(NO_QUOTA, deactivated, active=False)
    live = _pod("head-x", cluster="digits-older")
    saving = _state(rayjob, workload=workload, pods=[live])
    assert saving.phase is Phase.SUSPENDING
    assert saving.reason == (
        "suspended by alice on workstation, 2026-11-29 14:05 UTC: "
        "saving and ending: 1 pod still runs"
    )
    done = _state(rayjob, workload=workload)
    assert (done.phase, done.is_terminal, done.exit_code) == (Phase.SUSPENDED, False, None)
    assert done.reason == (
        "suspended by alice on workstation, 2026-11-29 14:05 UTC; footplate resume digits"
    )


def test_pods_of_a_lost_node_do_not_keep_a_run_from_being_suspended() -> None:
    """A pod past its grace period is only an entry that nobody removes."""
    stuck = _pod("head-x", cluster="digits-older", metadata={"deletionTimestamp": _ago(60)})
    rayjob = _rayjob("Suspended", suspend=True, marks={"suspended": MARK})
    assert _state(rayjob, workload=_workload(active=False), pods=[stuck]).phase is Phase.SUSPENDED


def test_deactivated_by_kueue() -> None:
    """Who does not pause a run ends it: the reason is Kueue's, also after an earlier pause."""
    evicted = _condition(
        "Evicted",
        "True",
        "DeactivatedDueToMaximumExecutionTimeExceeded",
        "The workload is deactivated due to exceeding the maximum execution time",
    )
    rayjob = _rayjob("Suspended", suspend=True, marks={"suspended": MARK})
    state = _state(rayjob, workload=_workload(NO_QUOTA, evicted, active=False))
    assert (state.phase, state.exit_code) == (Phase.DEACTIVATED, 22)
    assert state.reason == (
        "deactivated by Kueue: exceeding the maximum execution time "
        "(DeactivatedDueToMaximumExecutionTimeExceeded); footplate resume digits lets it in again"
    )


def test_evicted_and_waiting_to_try_again() -> None:
    """Kueue's pauses between tries are told, so that nobody takes them for a hang."""
    message = "Exceeded the PodsReady timeout team/rayjob-digits-12345"
    workload = _workload(
        _condition("QuotaReserved", "False", "Pending", message),
        _condition("Evicted", "True", "PodsReadyTimeout", message),
        requeueState={"count": 1, "requeueAt": _ago(-55)},
    )
    state = _state(_rayjob("Suspended", suspend=True), workload=workload)
    assert state.phase is Phase.QUEUED
    assert (
        state.reason == f"evicted: {message}; queued again in team-queue; Kueue tries again in 55 s"
    )


def test_admission_checks() -> None:
    """Quota is not yet admission: what else is waited for is named."""
    check = {"name": "provision", "state": "Pending", "message": "2 nodes are on their way"}
    workload = _workload(QUOTA, admissionChecks=[check])
    state = _state(_rayjob("Suspended", suspend=True), workload=workload)
    assert state.reason == (
        "queued in team-queue: its quota is set aside, waiting for admission checks: "
        "provision (2 nodes are on their way)"
    )


def test_silent_operator() -> None:
    """An admitted run that nobody starts points at the operator."""
    state = _state(_rayjob(""), workload=ADMITTED)
    assert state.phase is Phase.ADMITTED
    assert state.reason == "KubeRay has not acted on it for 100 s; is its operator running?"


def test_gpus_of_preempted_jobs() -> None:
    """On a full node the winner of a preemption waits for the pods of the loser to end."""
    full = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate"
    pending = _pod(
        "workers-worker-b",
        ready=False,
        phase="Pending",
        conditions=[_condition("PodScheduled", "False", "Unschedulable", full)],
    )
    told = "couldn't assign flavors to pod set workers: ... Pending the preemption of 1 workload(s)"
    event = {"involvedObject": {"kind": "Workload"}, "message": told}
    rayjob = _rayjob("Initializing")
    state = _state(rayjob, workload=ADMITTED, pods=[PODS[0], pending], events=[event])
    assert state.reason == "waiting for the GPUs of preempted jobs: their pods are still ending"
    without = _state(rayjob, workload=ADMITTED, pods=[PODS[0], pending])
    assert without.reason == (
        "waiting for 2 of 2 worker pods: no node fits: 0/2 nodes are available: "
        "2 Insufficient nvidia.com/gpu"
    )
    own = _pod("head-x", cluster="digits-older", metadata={"deletionTimestamp": _ago(-20)})
    earlier = _state(rayjob, workload=ADMITTED, pods=[PODS[0], pending, own])
    assert earlier.reason.startswith("waiting for the GPUs of its earlier pods")


def test_missing_mount_is_found_in_events() -> None:
    """A volume that cannot be mounted leaves no word in the pod itself."""
    waiting = {"name": "ray-head", "state": {"waiting": {"reason": "ContainerCreating"}}}
    head = _pod("head-a", ready=False, phase="Pending", containerStatuses=[waiting])
    event = {
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed for volume "s" : secret "missing" not found',
        "involvedObject": {"kind": "Pod", "name": "digits-abcde-head-a"},
        "lastTimestamp": _ago(20),
    }
    rayjob = _rayjob("Initializing")
    state = _state(rayjob, workload=ADMITTED, pods=[head], events=[event])
    assert state.reason == f"waiting for the head pod: {event['message']} (FailedMount)"
    pulling = event | {"type": "Normal", "reason": "Pulling", "lastTimestamp": _ago(5)}
    overcome = _state(rayjob, workload=ADMITTED, pods=[head], events=[event, pulling])
    assert overcome.reason == "waiting for the head pod: its containers are being created"


def test_killed_for_memory() -> None:
    """A container that comes back says why it went."""
    status = {
        "name": "ray-worker",
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    worker = _pod("workers-worker-b", ready=False, containerStatuses=[status])
    state = _state(_rayjob("Initializing"), workload=ADMITTED, pods=[PODS[0], worker])
    assert state.reason.endswith(
        "container ray-worker ended with exit code 137 (OOMKilled), restarted 2 times"
    )


def test_pods_that_nobody_may_list() -> None:
    """Without the pods the RayCluster still says what its head lacks."""
    head = _condition(
        "HeadPodReady",
        "False",
        "ImagePullBackOff",
        "containers with unready status: [ray-head]; ray-head: Back-off pulling image x",
    )
    cluster = {"status": {"conditions": [head], "readyWorkerReplicas": 1}}
    state = _state(
        _rayjob("Initializing"),
        workload=ADMITTED,
        raycluster=cluster,
        unseen=frozenset({"pods"}),
    )
    assert state.reason == ("waiting for the head pod: Back-off pulling image x (ImagePullBackOff)")
    assert state.workers_ready == 1


def test_identity_is_missing() -> None:
    """The kubelet's complaint says the same as the missing ConfigMap, which not all may list."""
    message = 'configmap "digits-footplate" not found'
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
    head = _pod(
        "head-a",
        ready=False,
        phase="Pending",
        containerStatuses=[{"name": "ray-head", "state": waiting}],
    )
    seen = {"workload": ADMITTED, "pods": [head]}
    told = "the submission was interrupted: its ConfigMap is missing; run footplate submit again"
    rayjob = _rayjob("Initializing")
    for state in (_state(rayjob, **seen), _state(rayjob, workload=ADMITTED, has_identity=False)):
        assert (state.phase, state.reason) == (Phase.INCOMPLETE, told)
    assert _state(rayjob, **seen, has_identity=True).phase is Phase.STARTING


def test_succeeded() -> None:
    """Success needs both the driver's and KubeRay's word, and shows what came out."""
    result = _result(
        "succeeded",
        steps=600,
        metrics={"loss": 0.04},
        checkpoint="step-00000600.a0001",
        tracking={"url": "https://mlflow.example/1"},
    )
    rayjob = _rayjob("Complete", jobStatus="SUCCEEDED", endTime=_ago(5))
    state = _state(rayjob, workload=ADMITTED, result=result, progress=_progress())
    assert (state.phase, state.exit_code, state.summary) == (Phase.SUCCEEDED, 0, "succeeded")
    assert state.reason == (
        "succeeded after step 600, loss 0.0400, last checkpoint step 600, last attempt took 6m30s"
    )
    assert state.mlflow == "https://mlflow.example/1"
    assert state.since == NOW - 5
    before = _state(_running(), workload=ADMITTED, result=result)
    assert before.phase is Phase.TRAINING
    assert before.reason == (
        "the driver has ended (succeeded after step 600); KubeRay has not taken note yet"
    )


def test_failed_with_a_result() -> None:
    """The driver's own account goes before what KubeRay quotes from the log."""
    message = "Job entrypoint command failed with exit code 1, last available logs (x):\nnoise"
    rayjob = _rayjob("Failed", jobStatus="FAILED", reason="AppFailed", message=message)
    notes = Notes(lines=("the code changed",))
    state = _state(rayjob, result=_result("failed", failure=FAILURE), notes=notes)
    assert (state.phase, state.exit_code, state.summary) == (Phase.FAILED, 10, "failed (10)")
    assert state.reason == "failed after step 120: ValueError on rank 1: bad batch second line"
    assert state.messages == ("the code changed",)
    old = _result("failed", failure=FAILURE, ended=NOW - 600)
    assert _state(rayjob, result=old).reason == "failed with exit code 1: noise"
    asked = _state(rayjob, result=_result("interrupted"))
    assert (asked.reason, asked.exit_code) == ("stopped after step 120, before its last", 130)


@pytest.mark.parametrize(
    ("status", "exit_code", "reason"),
    [
        (
            {"reason": "DeadlineExceeded", "message": "has passed the activeDeadlineSeconds"},
            1,
            "ran longer than 3600 s (activeDeadlineSeconds)",
        ),
        (
            {"reason": "PreRunningDeadlineExceeded"},
            19,
            "did not start within 1800 s (preRunningDeadlineSeconds): "
            "its pods are gone, and nothing is known of them",
        ),
        (
            {"reason": "SubmissionFailed", "message": "Job submission\nhas failed."},
            1,
            "failed: SubmissionFailed: Job submission has failed.",
        ),
        (
            {"message": "Job entrypoint command failed with exit code 0, odd"},
            1,
            "failed with exit code 0",
        ),
        ({}, 1, "failed: no reason told"),
    ],
)
def test_failed_without_a_result(status: dict[str, Any], exit_code: int, reason: str) -> None:
    """Each way in which KubeRay gives up has its sentence and its code."""
    state = _state(_rayjob("Failed", **status))
    assert (state.phase, state.exit_code, state.reason) == (Phase.FAILED, exit_code, reason)


def test_flavor_conflict() -> None:
    """Kueue can finish a Workload that never ran; KubeRay says nothing about it."""
    finished = _condition("Finished", "True", "FailedToStart", "conflict for nodeSelector")
    state = _state(_rayjob("Suspended", suspend=True), workload=_workload(finished))
    assert (state.phase, state.exit_code) == (Phase.FAILED, 19)
    assert state.reason == "Kueue cannot start it: conflict for nodeSelector"


def test_stopped_job_needs_a_signature() -> None:
    """Only its user cancels a run; stopped in any other way it has failed."""
    stopped = _rayjob("Complete", jobStatus="STOPPED")
    assert _state(stopped).phase is Phase.FAILED
    assert _state(stopped).exit_code == 1
    signed = _rayjob("Complete", jobStatus="STOPPED", marks={"cancelled": MARK})
    assert (_state(signed).phase, _state(signed).exit_code) == (Phase.CANCELLED, 20)


def test_cancelled() -> None:
    """A cancelled run goes on until its RayJob is gone; it says who ended it and how far it got."""
    rayjob = _running()
    rayjob["metadata"]["annotations"] = {"footplate.dev/cancelled": MARK}
    seen = {"workload": ADMITTED, "pods": PODS, "progress": _progress()}
    half = _state(rayjob, **seen)
    assert half.phase is Phase.TRAINING
    assert half.reason.endswith("not deleted yet; footplate cancel digits finishes that")
    rayjob["metadata"]["deletionTimestamp"] = _ago(1)
    assert _state(rayjob, **seen).reason == (
        "cancelled by alice on workstation, 2026-11-29 14:05 UTC: its pods are ending"
    )
    gone = _state(rayjob, progress=_progress(), is_deleted=True)
    assert (gone.phase, gone.exit_code) == (Phase.CANCELLED, 20)
    assert gone.reason == (
        "cancelled by alice on workstation, 2026-11-29 14:05 UTC; it got to step 120, "
        "last checkpoint step 100"
    )


def test_deleted() -> None:
    """What a deleted run came to is what its driver wrote, or who deleted it."""
    running = _running()
    plain = _state(running, is_deleted=True, progress=_progress())
    assert (plain.phase, plain.exit_code) == (Phase.DELETED, 21)
    assert plain.reason == (
        "its RayJob was deleted by someone else before it ended; it got to step 120, "
        "last checkpoint step 100"
    )
    assert _state(running, is_deleted=True, cancelled=True).phase is Phase.CANCELLED
    done = _state(running, is_deleted=True, result=_result("succeeded"))
    assert done.phase is Phase.SUCCEEDED
    failed = _state(running, is_deleted=True, result=_result("failed", failure=FAILURE))
    assert (failed.phase, failed.exit_code) == (Phase.FAILED, 10)
    invalid = _rayjob("ValidationFailed", message="no")
    assert _state(invalid, is_deleted=True).reason == "no"


def test_without_kueue() -> None:
    """A run outside any queue is suspended by its own spec."""
    young = _rayjob("", queue="", suspend=True, age=2)
    assert _state(young).phase is Phase.INCOMPLETE
    unsigned = _rayjob("Suspended", queue="", suspend=True)
    assert _state(unsigned).phase is Phase.SUSPENDED
    assert "nobody has signed for it" in _state(unsigned).reason
    signed = _rayjob("Suspended", queue="", suspend=True, marks={"suspended": MARK})
    state = _state(signed)
    assert (state.phase, state.queue) == (Phase.SUSPENDED, "")
    assert state.reason.startswith("suspended by alice on workstation, 2026-11-29 14:05 UTC; ")
    assert state.since == datetime(2026, 11, 29, 14, 5, tzinfo=UTC).timestamp()


def test_mark_of_another_form() -> None:
    """A mark that a person wrote by hand is shown as it is."""
    rayjob = _rayjob("Suspended", queue="", suspend=True, marks={"suspended": "yesterday"})
    assert _state(rayjob).reason == "suspended by somebody, yesterday; footplate resume digits"


def _with_data_workers(deployment: str, **status: Any) -> dict[str, Any]:
    """A job of two workers and a data worker."""
    rayjob = _rayjob(deployment, **status)
    group = {"groupName": "data", "replicas": 1}
    rayjob["spec"]["rayClusterSpec"]["workerGroupSpecs"].append(group)
    return rayjob


def _data_pod(**more: Any) -> Any:
    labels = {"ray.io/cluster": "digits-abcde", "ray.io/group": "data"}
    return _pod("data-worker-d", metadata={"labels": labels}, **more)


def test_workers_are_those_with_ranks() -> None:
    """Data workers are no part of the numbers that say how much of the training is there."""
    pods = (*PODS[:2], _data_pod())
    state = _state(_with_data_workers("Initializing"), workload=ADMITTED, pods=pods)
    assert (state.workers_ready, state.workers_wanted) == (1, 2)
    assert state.reason == "head pod is ready; workers 1/2, data workers 1/1"


def test_a_start_that_waits_for_a_data_worker_says_so() -> None:
    """The RayCluster is ready with all of its pods, and not before."""
    pods = (*PODS, _data_pod(ready=False, phase="Pending"))
    state = _state(_with_data_workers("Initializing"), workload=ADMITTED, pods=pods)
    assert (state.workers_ready, state.workers_wanted) == (2, 2)
    assert state.reason == "head pod is ready; workers 2/2, data workers 0/1"
    gone = _condition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available")
    pods = (*PODS, _data_pod(ready=False, phase="Pending", conditions=[gone]))
    state = _state(_with_data_workers("Initializing"), workload=ADMITTED, pods=pods)
    pod = "digits-abcde-data-worker-d"
    assert (
        state.reason == f"waiting for data worker pod {pod}: no node fits: 0/2 nodes are available"
    )


def test_training_goes_on_without_a_data_worker() -> None:
    """A view that has news of the training shows that; one that has none names who is missing."""
    rayjob = _with_data_workers("Running", jobStatus="RUNNING")
    seen = {"workload": ADMITTED, "pods": PODS}
    assert "step 120/600" in _state(rayjob, progress=_progress(), **seen).reason
    silent = _state(rayjob, progress=_progress(ago=90), **seen)
    assert silent.reason.endswith("; workers 2/2, data workers 0/1")


def test_pods_that_may_not_be_seen_count_as_workers_at_least() -> None:
    """The RayCluster counts all groups together: what is shown is never more than there is."""
    status = {"rayClusterStatus": {"readyWorkerReplicas": 2, "desiredWorkerReplicas": 3}}
    rayjob = _with_data_workers("Initializing", **status)
    state = _state(rayjob, workload=ADMITTED, unseen=frozenset({"pods"}))
    assert (state.workers_ready, state.workers_wanted) == (1, 2)


def test_what_kept_a_data_worker_from_starting_is_told_of_it() -> None:
    """Once the pods are gone only their names say what they were."""
    pod = {"kind": "Pod", "name": "digits-abcde-data-worker-x"}
    event = {"type": "Warning", "reason": "FailedMount", "message": "no such volume"}
    rayjob = _with_data_workers("Failed", reason="PreRunningDeadlineExceeded")
    state = _state(rayjob, events=[event | {"involvedObject": pod}])
    assert state.reason.endswith(": data worker pod: no such volume (FailedMount)")
