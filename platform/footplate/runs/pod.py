"""One pod of a run."""

from __future__ import annotations

from dataclasses import dataclass

from footplate.render import DATA_GROUP
from footplate.runs.fields import Fields, condition, field, string, timestamp

__all__ = ["Pod"]

# Past its grace period the kubelet needs a moment more; then the kubelet itself is gone.
_STUCK_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as the API gives it."""

    object: Fields

    @property
    def name(self) -> str:
        """Its name."""
        return string(self.object, "metadata", "name")

    @property
    def cluster(self) -> str:
        """The RayCluster it belongs to."""
        return string(self.object, "metadata", "labels", "ray.io/cluster")

    @property
    def is_head(self) -> bool:
        """Whether Ray's head and the driver run in it."""
        kind = string(self.object, "metadata", "labels", "ray.io/node-type")
        return kind == "head" or (not kind and "-head-" in self.name)

    @property
    def is_data_worker(self) -> bool:
        """Whether it is there for what Ray Data does, and has no ranks."""
        group = string(self.object, "metadata", "labels", "ray.io/group")
        return not self.is_head and group == DATA_GROUP

    @property
    def called(self) -> str:
        """``head pod``, ``worker pod`` or ``data worker pod``."""
        if self.is_head:
            return "head pod"
        return "data worker pod" if self.is_data_worker else "worker pod"

    @property
    def node(self) -> str:
        """Where it runs; empty before it is scheduled."""
        return string(self.object, "spec", "nodeName")

    @property
    def phase(self) -> str:
        """Kubernetes' own word for it."""
        return string(self.object, "status", "phase")

    @property
    def is_live(self) -> bool:
        """Whether its processes may still run."""
        return self.phase not in ("Succeeded", "Failed")

    @property
    def is_ready(self) -> bool:
        """Whether it answers and nobody has asked it to end."""
        ready = condition(self.object, "Ready")
        return self.is_live and not self.is_ending and ready is not None and ready.is_true

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end."""
        return field(self.object, "metadata", "deletionTimestamp") is not None

    @property
    def ends(self) -> float | None:
        """When its grace period is over, seconds since the epoch."""
        return timestamp(self.object, "metadata", "deletionTimestamp")

    def is_stuck(self, now: float) -> bool:
        """Whether it should have ended long ago: nobody on its node does what it is told."""
        return self.is_live and self.ends is not None and now > self.ends + _STUCK_AFTER_S
