"""Everything in the cluster that belongs to a run, and what of it is worth keeping."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from footplate.cluster import (
    CONFIG_MAP,
    EVENT,
    NODE,
    PENDING,
    POD,
    RAYCLUSTER,
    RAYJOB,
    WORKLOAD,
    Cluster,
    Selection,
)
from footplate.errors import AccessDeniedError, ClusterError, ObjectMissingError
from footplate.render import IDENTITY_KEY, LABEL_PREFIX, identity_name
from footplate.store import RunRecord

__all__ = [
    "ahead_in_queue",
    "available",
    "events_of",
    "nodes_of",
    "owner_name",
    "read_identity",
    "reduced",
    "related",
    "selections",
    "selections_of_many",
]

Object = dict[str, Any]
_NAME_LABEL = f"{LABEL_PREFIX}/name"
_JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
_ORIGIN_LABEL = "ray.io/originated-from-cr-name"
# What a status needs of each kind, besides metadata and status.
_SPEC_KEYS = {
    RAYJOB.kind: ("suspend", "preRunningDeadlineSeconds", "backoffLimit"),
    WORKLOAD.kind: ("active", "queueName", "priority", "priorityClassName"),
    POD.kind: ("nodeName", "terminationGracePeriodSeconds"),
}
_GROUP_KEYS = ("groupName", "replicas", "numOfHosts")
_CLUSTER_STATUS = "rayClusterStatus"
# What a status needs of that of a RayCluster, of which its RayJob has a copy.
_CLUSTER_STATUS_KEYS = (
    "conditions",
    "desiredWorkerReplicas",
    "readyWorkerReplicas",
    "reason",
    "state",
)
_METADATA_KEYS = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
)


def selections(name: str, namespace: str, uid: str) -> list[Selection]:
    """What to watch for one run."""
    return [
        Selection(kind=RAYJOB, namespace=namespace, fields=f"metadata.name={name}"),
        Selection(kind=WORKLOAD, namespace=namespace, labels=f"{_JOB_UID_LABEL}={uid}"),
        Selection(kind=RAYCLUSTER, namespace=namespace, labels=f"{_ORIGIN_LABEL}={name}"),
        Selection(kind=POD, namespace=namespace, labels=f"{_NAME_LABEL}={name}"),
    ]


def selections_of_many(namespace: str, labels: str = "") -> list[Selection]:
    """
    What to watch for all runs of a namespace.

    Args:
        namespace: Empty for all.
        labels: Selector of RayJobs, besides that they are ours.
    """
    return [
        Selection(
            kind=RAYJOB, namespace=namespace, labels=",".join(filter(None, (_NAME_LABEL, labels)))
        ),
        Selection(kind=WORKLOAD, namespace=namespace, labels=_JOB_UID_LABEL),
        Selection(kind=RAYCLUSTER, namespace=namespace, labels=_ORIGIN_LABEL),
        Selection(kind=POD, namespace=namespace, labels=_NAME_LABEL),
    ]


def available(cluster: Cluster, chosen: Iterable[Selection]) -> list[Selection]:
    """Those of the selections whose kind the cluster knows: there may be no Kueue."""
    return [
        selection
        for selection in chosen
        if selection.kind != WORKLOAD or _is_known(cluster, selection)
    ]


def _is_known(cluster: Cluster, selection: Selection) -> bool:
    try:
        next(cluster.pages(selection.kind, namespace=selection.namespace, labels="none=none"))
    except ObjectMissingError:
        return False
    return True


def related(cluster: Cluster, rayjob: Object) -> list[Object]:
    """The Workload, RayClusters and pods of a RayJob, as far as they are there."""
    metadata = rayjob["metadata"]
    found = []
    for selection in selections(metadata["name"], metadata["namespace"], metadata["uid"])[1:]:
        try:
            found += cluster.list(
                selection.kind, namespace=selection.namespace, labels=selection.labels
            )
        except ObjectMissingError:
            continue  # no Kueue in this cluster
    return found


def owner_name(thing: Mapping[str, Any]) -> str | None:
    """Name of the run that a RayCluster or pod belongs to."""
    labels = thing["metadata"].get("labels") or {}
    name = labels.get(_NAME_LABEL) or labels.get(_ORIGIN_LABEL)
    return name if isinstance(name, str) else None


def reduced(thing: Object) -> Object:
    """
    A copy of an object without what no status is made of: most of it, of a RayJob.

    It keeps nothing of the original alive, so that thousands cost little.
    """
    kind, metadata = thing.get("kind", ""), thing.get("metadata") or {}
    kept = {
        "kind": kind,
        "metadata": _some(metadata, _METADATA_KEYS),
        "spec": _kept_spec(kind, thing.get("spec") or {}),
    }
    if "status" in thing:  # without one it is not known yet, which is not the same as empty
        kept["status"] = _kept_status(kind, thing["status"] or {})
    shared: Object = _shared(kept)
    return shared


def _kept_spec(kind: str, spec: Object) -> Object:
    kept = _some(spec, _SPEC_KEYS.get(kind, ()))
    if kind == RAYJOB.kind:
        groups = (spec.get("rayClusterSpec") or {}).get("workerGroupSpecs") or []
        kept["rayClusterSpec"] = {
            "workerGroupSpecs": [_some(group, _GROUP_KEYS) for group in groups]
        }
    return kept


def _kept_status(kind: str, status: Object) -> Object:
    if kind == RAYCLUSTER.kind:
        return _some(status, _CLUSTER_STATUS_KEYS)
    if kind == RAYJOB.kind and (cluster := status.get(_CLUSTER_STATUS)):
        return status | {_CLUSTER_STATUS: _some(cluster, _CLUSTER_STATUS_KEYS)}
    return status


def _some(values: Object, keys: Iterable[str]) -> Object:
    return {key: values[key] for key in keys if key in values}


def _shared(value: Any) -> Any:
    """A copy in which each text is there once, however many objects say it."""
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, dict):
        return {sys.intern(key): _shared(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shared(each) for each in value]
    return value


def ahead_in_queue(cluster: Cluster, workload: Mapping[str, Any]) -> list[str] | None:
    """
    Who of the same LocalQueue would be let in before a Workload, first one first.

    Returns:
        Names of their jobs; None where Kueue does not tell.
    """
    metadata = workload["metadata"]
    queue = (workload.get("spec") or {}).get("queueName")
    try:
        summary = cluster.get(
            PENDING, queue, namespace=metadata["namespace"], subresource="pendingworkloads"
        )
    except ClusterError:
        return None
    waiting = [item["metadata"] for item in summary.get("items") or []]
    names = [each["name"] for each in waiting]
    if metadata["name"] not in names:
        return None
    return [_job_name(each) for each in waiting[: names.index(metadata["name"])]]


def _job_name(workload: Mapping[str, Any]) -> str:
    owners = workload.get("ownerReferences") or [workload]
    name: str = owners[0]["name"]
    return name


def read_identity(cluster: Cluster, name: str, namespace: str, uid: str) -> RunRecord | None:
    """The record that the pods of a run are given; None if it is not there."""
    config = cluster.find(CONFIG_MAP, identity_name(name), namespace=namespace)
    if config is None:
        return None
    record = RunRecord.model_validate_json((config.get("data") or {}).get(IDENTITY_KEY, "{}"))
    return record if record.uid == uid else None


def events_of(cluster: Cluster, things: Iterable[Mapping[str, Any]]) -> list[Object]:
    """The warnings about some objects; none where reading them is not allowed."""
    found: list[Object] = []
    for thing in things:
        metadata = thing["metadata"]
        fields = f"involvedObject.uid={metadata['uid']},type=Warning"
        try:
            found += cluster.list(EVENT, namespace=metadata["namespace"], fields=fields)
        except ClusterError:
            return found
    return found


def nodes_of(cluster: Cluster, pods: Sequence[Mapping[str, Any]]) -> list[Object]:
    """The nodes that some pods are on; none where reading them is not allowed."""
    names = {name for pod in pods if (name := (pod.get("spec") or {}).get("nodeName"))}
    found = []
    for name in sorted(names):
        try:
            node = cluster.find(NODE, name)
        except AccessDeniedError:
            return []
        if node is not None:
            found.append(node)
    return found
