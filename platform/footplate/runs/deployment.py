"""What KubeRay says of a RayJob."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Deployment"]


class Deployment(StrEnum):
    """``status.jobDeploymentStatus`` of a RayJob, and what a newer operator may say."""

    NEW = ""
    INITIALIZING = "Initializing"
    WAITING = "Waiting"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RETRYING = "Retrying"
    COMPLETE = "Complete"
    FAILED = "Failed"
    VALIDATION_FAILED = "ValidationFailed"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> Deployment:
        return cls.UNKNOWN

    @property
    def has_ended(self) -> bool:
        """Whether KubeRay does nothing more with it."""
        return self in (Deployment.COMPLETE, Deployment.FAILED, Deployment.VALIDATION_FAILED)
