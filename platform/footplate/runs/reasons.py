"""What explains where runs stand and no watch brings: events, nodes, and the order of queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from footplate.cluster import EVENT, NODE, PENDING, Cluster
from footplate.errors import ClusterError
from footplate.runs.fields import Fields, condition, field, items, string
from footplate.runs.phase import Phase
from footplate.runs.snapshot import Snapshot

__all__ = ["MAY_BE_STUCK", "Reasons"]

Object = dict[str, Any]
MAY_BE_STUCK = (Phase.ADMITTED, Phase.STARTING, Phase.TRAINING, Phase.SUSPENDING)
"""Phases in which pods may be in trouble."""

_KEPT_S = 9.0
# More nodes than this are asked for all at once, however many the cluster has.
_FEW = 4
_EVENT_KEYS = (
    "count",
    "eventTime",
    "firstTimestamp",
    "involvedObject",
    "lastTimestamp",
    "message",
    "reason",
    "type",
)


class _Answer(NamedTuple):
    time: float
    value: Any


class Reasons:
    """
    Asks the cluster why, for one run or for many.

    What it has asked for a moment ago it does not ask for again: many runs of a namespace, or
    of a queue, cost as much as one. What may not be read is as if it were not there.

    Args:
        kept_s: How long an answer serves, in seconds.
    """

    def __init__(self, cluster: Cluster, *, kept_s: float = _KEPT_S) -> None:
        self._cluster = cluster
        self._kept_s = kept_s
        self._answers: dict[tuple[str, ...], _Answer] = {}

    def events(self, snapshot: Snapshot, phase: Phase) -> Sequence[Object]:
        """Events about the pods of a run, its RayCluster and its Workload, if they may matter."""
        if not _needs_events(snapshot, phase):
            return ()
        cluster = string(snapshot.rayjob, "status", "rayClusterName")
        things = (*snapshot.pods, snapshot.raycluster, snapshot.workload)
        uids = {string(thing, "metadata", "uid") for thing in things} - {""}
        return [
            event
            for event in self._events_in(snapshot.namespace)
            if string(event, "involvedObject", "uid") in uids
            or (cluster and _is_of(string(event, "involvedObject", "name"), cluster))
        ]

    def nodes(self, snapshot: Snapshot, phase: Phase) -> Sequence[Object]:
        """The nodes of pods that are not ready: the pods of a lost node are not."""
        if phase not in MAY_BE_STUCK:
            return ()
        pods = (pod for pod in snapshot.current_pods() if not pod.is_ready)
        names = sorted({pod.node for pod in pods} - {""})
        if len(names) > _FEW:
            there = self._asked(("nodes",), lambda: self._cluster.list(NODE, reduce=_node)) or []
            return [node for node in there if string(node, "metadata", "name") in names]
        found = (self._node(name) for name in names)
        return [node for node in found if node is not None]

    def ahead(self, snapshot: Snapshot, phase: Phase) -> Sequence[str] | None:
        """Names of the jobs that Kueue would let in before one; None where it does not tell."""
        workload = snapshot.workload
        if phase is not Phase.QUEUED or workload is None or snapshot.has_quota:
            return None
        queue = string(workload, "spec", "queueName")
        waiting = self._waiting(snapshot.namespace, queue)
        names = [string(each, "metadata", "name") for each in waiting]
        own = string(workload, "metadata", "name")
        if own not in names:
            return None
        return [_job_name(each) for each in waiting[: names.index(own)]]

    def _events_in(self, namespace: str) -> list[Object]:
        def ask() -> list[Object]:
            return self._cluster.list(EVENT, namespace=namespace, reduce=_event)

        return self._asked(("events", namespace), ask) or []

    def _node(self, name: str) -> Object | None:
        found: Object | None = self._asked(("node", name), lambda: self._cluster.find(NODE, name))
        return found

    def _waiting(self, namespace: str, queue: str) -> list[Fields]:
        def ask() -> list[Fields]:
            summary = self._cluster.get(
                PENDING, queue, namespace=namespace, subresource="pendingworkloads"
            )
            return items(summary, "items")

        return (self._asked(("queue", namespace, queue), ask) or []) if queue else []

    def _asked(self, key: tuple[str, ...], ask: Callable[[], Any]) -> Any:
        """The answer, at most so old; the last one if there is none now."""
        now, last = time.monotonic(), self._answers.get(key)
        if last is not None and now - last.time < self._kept_s:
            return last.value
        try:
            value = ask()
        except ClusterError:
            value = last.value if last is not None else None
        self._answers[key] = _Answer(now, value)
        return value


def _needs_events(snapshot: Snapshot, phase: Phase) -> bool:
    if phase is Phase.FAILED:
        return string(snapshot.rayjob, "status", "reason") == "PreRunningDeadlineExceeded"
    if phase not in MAY_BE_STUCK:
        return False
    failure = condition(snapshot.cluster, "ReplicaFailure")
    fails = failure is not None and failure.is_true
    return fails or any(not pod.is_ready for pod in snapshot.current_pods())


def _is_of(name: str, cluster: str) -> bool:
    """Whether a name is that of a RayCluster, or of one of its pods, which may be gone."""
    return name == cluster or name.startswith(f"{cluster}-")


def _event(event: Mapping[str, Any]) -> Object:
    return {key: event[key] for key in _EVENT_KEYS if key in event}


def _node(node: Mapping[str, Any]) -> Object:
    """Without the images that the node has, which are most of it."""
    conditions = field(node, "status", "conditions")
    name = string(node, "metadata", "name")
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


def _job_name(workload: Fields) -> str:
    owners = items(workload, "metadata", "ownerReferences")
    return string(owners[0], "name") if owners else string(workload, "metadata", "name")
