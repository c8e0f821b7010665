"""What the guard sees, and how its rules read it: plain objects as the API gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from footplate.cluster import Kind
from footplate.runs.fields import condition, items, string
from footplate.runs.marks import CANCELLED, mark_of

__all__ = [
    "NewCluster",
    "Object",
    "Reference",
    "World",
    "is_leaving",
    "is_true",
    "labels",
    "reduced",
    "status_of",
]

Object = Mapping[str, Any]
"""An object of Kubernetes, or what :func:`reduced` has left of it."""

_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "deletionTimestamp",
    "labels",
    "annotations",
)
_SPEC = ("active", "nodeName", "suspend")
_STATUS = ("conditions", "jobDeploymentStatus", "message", "rayClusterName")
_CONDITIONS = {"Evicted", "Finished", "QuotaReserved", "Ready"}
_MESSAGE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Reference:
    """One object, and no later one of the same name."""

    kind: Kind
    namespace: str
    name: str
    uid: str

    @classmethod
    def to(cls, kind: Kind, found: Object) -> Reference:
        """The reference to an object that was read."""
        metadata = found["metadata"]
        return cls(kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"])

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class NewCluster:
    """The wish of a driver for a new RayCluster: which attempt has it, and why."""

    attempt: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """
    What is seen at one time.

    Attributes:
        wishes: What drivers have asked for, by the UID of their RayJob.
    """

    rayjobs: Sequence[Object] = ()
    workloads: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    nodes: Sequence[Object] = ()
    wishes: Mapping[str, NewCluster] = field(default_factory=dict)


def reduced(found: Object) -> dict[str, Any]:
    """What of an object of any kind the rules read; the rest need not be remembered."""
    spec, status = found.get("spec") or {}, found.get("status") or {}
    kept = {key: status[key] for key in _STATUS if key in status}
    kept["conditions"] = [
        one for one in items(found, "status", "conditions") if one.get("type") in _CONDITIONS
    ]
    kept["message"] = string(found, "status", "message")[:_MESSAGE_LENGTH]
    return {
        "metadata": {key: found["metadata"][key] for key in _METADATA if key in found["metadata"]},
        "spec": {key: spec[key] for key in _SPEC if key in spec},
        "status": kept,
    }


def status_of(rayjob: Object) -> str:
    """How far KubeRay is with a RayJob; empty for not yet begun."""
    return string(rayjob, "status", "jobDeploymentStatus")


def is_leaving(found: Object) -> bool:
    """Whether it is being deleted, or about to be by the word of its user."""
    return "deletionTimestamp" in found["metadata"] or mark_of(found, CANCELLED) is not None


def labels(found: Object) -> Mapping[str, str]:
    """The labels of an object."""
    return found["metadata"].get("labels") or {}


def is_true(found: Object, kind: str) -> bool:
    """Whether it has the condition of that type, and it holds."""
    one = condition(found, kind)
    return one is not None and one.is_true
