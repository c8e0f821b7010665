"""What a job passes on its way to the first training step, and when."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from footplate.cluster import POD, RAYJOB, WORKLOAD, Change

__all__ = ["STAGES", "Stages"]

STAGES = (
    "created",
    "admitted",
    "head container started",
    "head ready",
    "worker init done",
    "workers ready",
    "RayJob running",
    "ray.init done",
    "worker group asked for",
    "ranks started",
    "data asked for",
    "first step",
)

_LOGGED = {
    "ray.init done": "Connected to Ray cluster",
    "worker group asked for": "Attempting to start training worker group",
    "ranks started": "Started training worker group",
    "data asked for": "Starting execution of Dataset",
}
_NODE_TYPE = "ray.io/node-type"
_Object = Mapping[str, Any]


class Stages:
    """
    When a job was where, in seconds since its submission.

    Args:
        name: Of the RayJob.
        workers: How many worker pods it has.
        submitted: Seconds since the epoch.
    """

    def __init__(self, name: str, workers: int, submitted: float) -> None:
        self.reached: dict[str, float] = {}
        self._name = name
        self._workers = workers
        self._submitted = submitted
        self._pods: dict[str, _Object] = {}

    @property
    def age(self) -> float:
        """Seconds since the submission."""
        return time.time() - self._submitted

    def reach(self, stage: str, when: float) -> None:
        """
        It is there; what counts is the first time.

        Args:
            when: Seconds since the epoch.
        """
        assert stage in STAGES
        self.reached.setdefault(stage, when - self._submitted)

    def see(self, change: Change, when: float) -> None:
        """
        What the cluster has told.

        Args:
            when: Seconds since the epoch.
        """
        thing = change.object
        if thing is None:
            return
        if change.kind == RAYJOB:
            self._see_rayjob(thing, when)
        elif change.kind == WORKLOAD:
            self._see_workload(thing, when)
        elif change.kind == POD:
            self._see_pod(change.uid, thing, when)

    def read(self, log: str) -> None:
        """What the driver has printed; each line begins with the time in RFC 3339."""
        for line in log.splitlines():
            stamp, _, text = line.partition(" ")
            for stage, said in _LOGGED.items():
                if said in text:
                    self.reach(stage, _seconds(stamp))

    def _see_rayjob(self, rayjob: _Object, when: float) -> None:
        if rayjob["metadata"]["name"] != self._name:
            return
        self.reach("created", when)
        if (rayjob.get("status") or {}).get("jobDeploymentStatus") == "Running":
            self.reach("RayJob running", when)

    def _see_workload(self, workload: _Object, when: float) -> None:
        owners = workload["metadata"].get("ownerReferences") or []
        if any(owner["name"] == self._name for owner in owners) and _is(workload, "Admitted"):
            self.reach("admitted", when)

    def _see_pod(self, uid: str, pod: _Object, when: float) -> None:
        labels = pod["metadata"].get("labels") or {}
        if not labels.get("ray.io/cluster", "").startswith(f"{self._name}-"):
            return
        self._pods[uid] = pod
        if labels.get(_NODE_TYPE) == "head":
            self._see_head(pod, when)
            return
        workers = [each for each in self._pods.values() if not _is_head(each)]
        if sum(map(_has_initialized, workers)) == self._workers:
            self.reach("worker init done", when)
        if sum(_is(each, "Ready") for each in workers) == self._workers:
            self.reach("workers ready", when)

    def _see_head(self, pod: _Object, when: float) -> None:
        containers = (pod.get("status") or {}).get("containerStatuses") or []
        if any("running" in (each.get("state") or {}) for each in containers):
            self.reach("head container started", when)
        if _is(pod, "Ready"):
            self.reach("head ready", when)


def _is_head(pod: _Object) -> bool:
    return bool(pod["metadata"]["labels"].get(_NODE_TYPE) == "head")


def _has_initialized(pod: _Object) -> bool:
    statuses: Sequence[_Object] = (pod.get("status") or {}).get("initContainerStatuses") or []
    return bool(statuses) and all("terminated" in (each.get("state") or {}) for each in statuses)


def _is(thing: _Object, condition: str) -> bool:
    conditions = (thing.get("status") or {}).get("conditions") or []
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _seconds(stamp: str) -> float:
    # Python reads microseconds, the kubelet writes nanoseconds.
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z$", r"\1+00:00", stamp)).timestamp()
