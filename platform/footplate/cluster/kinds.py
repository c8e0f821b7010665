"""The kinds of Kubernetes objects that Footplate deals with, and where the API has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

__all__ = [
    "ALL_NAMESPACES",
    "CLUSTER_QUEUE",
    "CONFIG_MAP",
    "EVENT",
    "LOCAL_QUEUE",
    "NODE",
    "PENDING",
    "POD",
    "RAYCLUSTER",
    "RAYJOB",
    "SECRET",
    "SERVICE",
    "WORKLOAD",
    "Kind",
    "kind_of",
]

ALL_NAMESPACES = ""
"""Where a namespace is asked for: every one of them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """
    A kind of object.

    Args:
        group: Of the API; empty for the core.
        version: Of the group.
        plural: The word in paths and in permissions.
        kind: The word in objects.
        namespaced: Whether its objects live in a namespace.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name that ``kubectl`` and permissions know it by."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str, name: str | None = None, subresource: str | None = None) -> str:
        """
        The path of an object, or of the collection, below the address of the API server.

        Args:
            namespace: Where; disregarded for a kind that has none.
            name: Of the object; None for the collection.
            subresource: Of the object, as ``status`` or ``log``.
        """
        parts = ["apis" if self.group else "api", *self.api_version.split("/")]
        if self.namespaced and namespace != ALL_NAMESPACES:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "".join(f"/{quote(part, safe='')}" for part in parts)


RAYJOB = Kind("ray.io", "v1", "rayjobs", "RayJob")
RAYCLUSTER = Kind("ray.io", "v1", "rayclusters", "RayCluster")
WORKLOAD = Kind("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
PENDING = Kind("visibility.kueue.x-k8s.io", "v1beta2", "localqueues", "PendingWorkloadsSummary")
"""Who waits in a LocalQueue, in what order: its subresource ``pendingworkloads``."""
LOCAL_QUEUE = Kind("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
CLUSTER_QUEUE = Kind("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)
POD = Kind("", "v1", "pods", "Pod")
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
SECRET = Kind("", "v1", "secrets", "Secret")
SERVICE = Kind("", "v1", "services", "Service")
EVENT = Kind("", "v1", "events", "Event")
NODE = Kind("", "v1", "nodes", "Node", namespaced=False)

_KINDS = {
    (kind.api_version, kind.kind): kind
    for kind in (
        RAYJOB,
        RAYCLUSTER,
        WORKLOAD,
        LOCAL_QUEUE,
        CLUSTER_QUEUE,
        POD,
        CONFIG_MAP,
        SECRET,
        SERVICE,
        EVENT,
        NODE,
    )
}


def kind_of(obj: Mapping[str, Any]) -> Kind:
    """
    The kind of an object, by its ``apiVersion`` and ``kind``.

    Raises:
        ValueError: If it is none of those above.
    """
    key = (obj.get("apiVersion", ""), obj.get("kind", ""))
    if key not in _KINDS:
        known = ", ".join(f"{kind} ({version})" for version, kind in sorted(_KINDS))
        raise ValueError(f"no kind {key[1]!r} of {key[0]!r}; there are {known}")
    return _KINDS[key]
