"""Everything in the cluster that belongs to a run, and what of it is worth keeping."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from footplate.cluster import (
    CONFIG_MAP,
    POD,
    RAYCLUSTER,
    RAYJOB,
    WORKLOAD,
    Cluster,
    Kind,
    Reduce,
    Selection,
)
from footplate.errors import AccessDeniedError, ClusterError, ObjectMissingError
from footplate.render import IDENTITY_KEY, identity_name
from footplate.runs.marks import JOB_UID_LABEL, NAME_LABEL
from footplate.store import RunRecord

__all__ = [
    "owner_name",
    "read_identity",
    "readable",
    "reduced",
    "selections",
    "selections_of_many",
    "survey",
]

Object = dict[str, Any]
_ORIGIN_LABEL = "ray.io/originated-from-cr-name"
# What a status needs of each kind, besides metadata and status.
_SPEC_KEYS = {
    RAYJOB.kind: (
        "activeDeadlineSeconds",
        "backoffLimit",
        "preRunningDeadlineSeconds",
        "suspend",
    ),
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
# As a snapshot calls what can't be looked at. For a RayCluster its RayJob has a copy.
_UNSEEN = {WORKLOAD: "workload", POD: "pods"}
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
        Selection(kind=WORKLOAD, namespace=namespace, labels=f"{JOB_UID_LABEL}={uid}"),
        Selection(kind=RAYCLUSTER, namespace=namespace, labels=f"{_ORIGIN_LABEL}={name}"),
        Selection(kind=POD, namespace=namespace, labels=f"{NAME_LABEL}={name}"),
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
            kind=RAYJOB, namespace=namespace, labels=",".join(filter(None, (NAME_LABEL, labels)))
        ),
        Selection(kind=WORKLOAD, namespace=namespace, labels=JOB_UID_LABEL),
        Selection(kind=RAYCLUSTER, namespace=namespace, labels=_ORIGIN_LABEL),
        Selection(kind=POD, namespace=namespace, labels=NAME_LABEL),
    ]


def readable(
    cluster: Cluster, chosen: Iterable[Selection], *, needed: Collection[Kind] = (RAYJOB,)
) -> tuple[list[Selection], frozenset[str]]:
    """
    Those of the selections that can be followed.

    Args:
        needed: Kinds without which there is nothing to show; it is not asked whether they can be.

    Returns:
        With them, what a snapshot leaves unseen for it.
    """
    kept: list[Selection] = []
    unseen: set[str] = set()
    for selection in chosen:
        if selection.kind in needed or _is_readable(cluster, selection, unseen):
            kept.append(selection)
    return kept, frozenset(unseen)


def survey(
    cluster: Cluster, chosen: Iterable[Selection], *, reduce: Reduce | None = None
) -> tuple[list[Object], frozenset[str]]:
    """
    All that the selections show, as far as the cluster knows it and the user may see it.

    Args:
        reduce: Gives what is kept of an object; by default all of it.

    Returns:
        With it, what a snapshot leaves unseen: RBAC refuses Workloads even without Kueue.
    """
    found: list[Object] = []
    unseen: set[str] = set()
    for selection in chosen:
        with _missing(selection, unseen):
            found += cluster.list(
                selection.kind,
                namespace=selection.namespace,
                labels=selection.labels,
                fields=selection.fields,
                reduce=reduce,
            )
    return found, frozenset(unseen)


def _is_readable(cluster: Cluster, selection: Selection, unseen: set[str]) -> bool:
    with _missing(selection, unseen):
        next(cluster.pages(selection.kind, namespace=selection.namespace, labels="none=none"))
        return True
    return False


@contextmanager
def _missing(selection: Selection, unseen: set[str]) -> Iterator[None]:
    """Do without a kind that the cluster does not know, or that may not be read."""
    try:
        yield
    except ObjectMissingError:
        return  # no Kueue in this cluster
    except AccessDeniedError:
        if (name := _UNSEEN.get(selection.kind)) is not None:
            unseen.add(name)


def owner_name(thing: Mapping[str, Any]) -> str | None:
    """Name of the run that a RayCluster or pod belongs to."""
    labels = thing["metadata"].get("labels") or {}
    name = labels.get(NAME_LABEL) or labels.get(_ORIGIN_LABEL)
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


def read_identity(cluster: Cluster, name: str, namespace: str, uid: str) -> RunRecord | None:
    """
    The record that the pods of a run are given.

    Returns:
        None if it is not there, or is that of an earlier run of the same name.

    Raises:
        ClusterError: If it is no record.
    """
    config = cluster.find(CONFIG_MAP, identity_name(name), namespace=namespace)
    if config is None:
        return None
    try:
        record = RunRecord.model_validate_json((config.get("data") or {})[IDENTITY_KEY])
    except (KeyError, ValidationError) as error:
        raise ClusterError(
            f"ConfigMap {identity_name(name)} in namespace {namespace} is no identity of a run: "
            f"{error}"
        ) from error
    return record if record.uid == uid else None
