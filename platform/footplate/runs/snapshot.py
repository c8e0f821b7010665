"""What was seen of a run at one moment, and the plain facts that stand in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from footplate.render import DATA_GROUP
from footplate.runs.deployment import Deployment
from footplate.runs.fields import Condition, Fields, condition, field, integer, items, string
from footplate.runs.fields import timestamp as time_at
from footplate.runs.marks import CANCELLED, NAME_LABEL, QUEUE_LABEL, SUSPENDED
from footplate.runs.pod import Pod
from footplate.store import AttemptResult, Notes, Progress

__all__ = ["Snapshot"]

# The clocks of the driver and of the operator differ by no more.
_CLOCK_SKEW_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """
    What was seen of a run, as far as it was.

    Attributes:
        rayjob: As last seen, if it is deleted.
        workload: Kueue's, of this RayJob; None if there is none.
        raycluster: The newest one; None if there is none.
        pods: Of the run, those of earlier RayClusters included.
        events: About any of these objects.
        nodes: Those that the pods are on.
        ahead: Names of those that Kueue would let in before it; None if nobody knows.
        progress: Of the newest attempt, from the store.
        notes: Of the newest attempt, from the store.
        result: Of the newest attempt, from the store.
        attempt: Number of the newest attempt, if any has begun.
        has_identity: Whether the ConfigMap with the identity is there; None if nobody looked.
        cancelled: Whether the store says that its user has ended it.
        is_deleted: Whether the RayJob is gone.
        unseen: What could not be looked at, of ``workload``, ``pods`` and ``store``: nothing is
            concluded from its absence.
    """

    rayjob: Fields
    workload: Fields | None = None
    raycluster: Fields | None = None
    pods: Sequence[Fields] = ()
    events: Sequence[Fields] = ()
    nodes: Sequence[Fields] = ()
    ahead: Sequence[str] | None = None
    progress: Progress | None = None
    notes: Notes | None = None
    result: AttemptResult | None = None
    attempt: int | None = None
    has_identity: bool | None = None
    cancelled: bool = False
    is_deleted: bool = False
    unseen: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Of the RayJob; of the run, should the object lack it."""
        own = string(self.rayjob, "metadata", "labels", NAME_LABEL)
        return string(self.rayjob, "metadata", "name") or own

    @property
    def namespace(self) -> str:
        """Where the run is."""
        return string(self.rayjob, "metadata", "namespace")

    @property
    def queue(self) -> str:
        """Its LocalQueue; empty if Kueue has nothing to do with it."""
        return string(self.rayjob, "metadata", "labels", QUEUE_LABEL)

    @property
    def created(self) -> float | None:
        """When it was submitted."""
        return time_at(self.rayjob, "metadata", "creationTimestamp")

    @property
    def deployment(self) -> Deployment:
        """What KubeRay says."""
        return Deployment(string(self.rayjob, "status", "jobDeploymentStatus"))

    @property
    def job_status(self) -> str:
        """What Ray says of the driver: empty, PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED."""
        return string(self.rayjob, "status", "jobStatus")

    @property
    def started(self) -> float | None:
        """When KubeRay began with the newest RayCluster."""
        return time_at(self.rayjob, "status", "startTime")

    @property
    def is_suspended(self) -> bool:
        """Whether KubeRay is told not to run it."""
        return field(self.rayjob, "spec", "suspend") is True

    @property
    def suspended_mark(self) -> str:
        """When and by whom it was paused; empty if its user has not."""
        return string(self.rayjob, "metadata", "annotations", SUSPENDED)

    @property
    def cancelled_mark(self) -> str:
        """When and by whom it was ended; empty if its user has not."""
        return string(self.rayjob, "metadata", "annotations", CANCELLED)

    @property
    def is_cancelled(self) -> bool:
        """Whether its user has ended it."""
        return self.cancelled or bool(self.cancelled_mark)

    @property
    def is_deactivated(self) -> bool:
        """Whether Kueue keeps it out of the queue until somebody lets it in again."""
        return field(self.workload, "spec", "active") is False

    @property
    def is_admitted(self) -> bool:
        """Whether it has its quota and everything else that Kueue waits for."""
        return self._kueue_says("Admitted")

    @property
    def has_quota(self) -> bool:
        """Whether its quota is set aside."""
        return self._kueue_says("QuotaReserved")

    @property
    def eviction(self) -> Condition | None:
        """Why Kueue has taken the quota away, as long as it has not been given back."""
        found = condition(self.workload, "Evicted")
        return found if found is not None and found.is_true else None

    @property
    def cluster(self) -> Fields:
        """The status of the RayCluster; the copy in the RayJob if the object is not there."""
        own = field(self.raycluster, "status")
        status = own if own is not None else field(self.rayjob, "status", "rayClusterStatus")
        return {"status": status}

    @property
    def workers_wanted(self) -> int:
        """How many worker pods there are to be, those that have ranks."""
        everywhere = integer(self.cluster, "status", "desiredWorkerReplicas")
        return self._wanted(of_data=False) or everywhere

    @property
    def workers_ready(self) -> int:
        """How many worker pods are ready, those that have ranks."""
        if "pods" in self.unseen:
            # Of all groups together: at least so many of them are workers.
            ready = integer(self.cluster, "status", "readyWorkerReplicas")
            return max(0, ready - self.data_workers_wanted)
        return self._ready(of_data=False)

    @property
    def data_workers_wanted(self) -> int:
        """How many pods there are to be for what Ray Data does."""
        return self._wanted(of_data=True)

    @property
    def workers_told(self) -> str:
        """``workers 7/8``, and ``data workers 1/2`` if the run has any and can see them."""
        told = f"workers {self.workers_ready}/{self.workers_wanted}"
        if not self.data_workers_wanted or "pods" in self.unseen:
            return told
        return f"{told}, data workers {self._ready(of_data=True)}/{self.data_workers_wanted}"

    @property
    def lacks_workers(self) -> bool:
        """Whether a worker or a data worker is not ready, as far as it can be seen."""
        lacks = self.workers_ready < self.workers_wanted
        seen = "pods" not in self.unseen
        return lacks or (seen and self._ready(of_data=True) < self.data_workers_wanted)

    @property
    def has_head(self) -> bool:
        """Whether the head pod is ready, as far as it can be seen."""
        if "pods" in self.unseen:
            head = condition(self.cluster, "HeadPodReady")
            return head is None or head.is_true
        return any(pod.is_ready and pod.is_head for pod in self.current_pods())

    def current_pods(self) -> list[Pod]:
        """The pods of the newest RayCluster."""
        newest = string(self.rayjob, "status", "rayClusterName")
        return [pod for pod in map(Pod, self.pods) if newest and pod.cluster == newest]

    def ending_pods(self, now: float) -> list[Pod]:
        """The pods that still run although their RayCluster is gone or about to go."""
        newest = string(self.rayjob, "status", "rayClusterName")
        goes = self.is_deleted or self.deployment in (Deployment.SUSPENDING, Deployment.SUSPENDED)
        return [
            pod
            for pod in map(Pod, self.pods)
            if pod.is_live and not pod.is_stuck(now) and (goes or pod.cluster != newest)
        ]

    def current_progress(self) -> Progress | None:
        """The progress, unless it is of an attempt before the newest RayCluster."""
        past = self.progress is None or self._is_past(self.progress.time)
        return None if past else self.progress

    def current_result(self) -> AttemptResult | None:
        """The result, unless it is of an attempt before the newest RayCluster."""
        past = self.result is None or self._is_past(self.result.ended)
        return None if past else self.result

    def age(self, now: float) -> float:
        """Seconds since it was submitted."""
        return now - (self.created if self.created is not None else now)

    def _wanted(self, *, of_data: bool) -> int:
        groups = items(self.rayjob, "spec", "rayClusterSpec", "workerGroupSpecs")
        return sum(
            max(0, integer(group, "replicas")) * max(1, integer(group, "numOfHosts"))
            for group in groups
            if (string(group, "groupName") == DATA_GROUP) is of_data
        )

    def _ready(self, *, of_data: bool) -> int:
        workers = (pod for pod in self.current_pods() if not pod.is_head)
        return sum(pod.is_ready and pod.is_data_worker is of_data for pod in workers)

    def _is_past(self, time: float) -> bool:
        return self.started is not None and time < self.started - _CLOCK_SKEW_S

    def _kueue_says(self, kind: str) -> bool:
        found = condition(self.workload, kind)
        return found is not None and found.is_true
