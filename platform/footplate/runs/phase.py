"""The phases of a run, and what a judgement of one consists of."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self

__all__ = ["EXIT_CANCELLED", "EXIT_DEACTIVATED", "EXIT_DELETED", "Finding", "Phase"]

EXIT_CANCELLED = 20
"""Its user has ended the run."""

EXIT_DELETED = 21
"""Somebody has deleted the RayJob before it ended."""

EXIT_DEACTIVATED = 22
"""Kueue or somebody else has taken the run out of its queue, for good."""


class Phase(StrEnum):
    """
    Where a run stands.

    Attributes:
        is_terminal: Nothing more happens by itself.
    """

    is_terminal: bool

    def __new__(cls, value: str, is_terminal: bool = False) -> Self:
        """A member with its attributes."""
        phase = str.__new__(cls, value)
        phase._value_ = value
        phase.is_terminal = is_terminal
        return phase

    INCOMPLETE = "incomplete"
    QUEUED = "queued"
    ADMITTED = "admitted"
    STARTING = "starting"
    TRAINING = "training"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    DEACTIVATED = "deactivated", True
    SUCCEEDED = "succeeded", True
    FAILED = "failed", True
    CANCELLED = "cancelled", True
    DELETED = "deleted", True


class Finding(NamedTuple):
    """
    What was found out about a run.

    Attributes:
        reason: On what it waits, what it does, or why it ended.
        since: When the phase began, seconds since the epoch, if that is known.
        exit_code: Of a terminal phase.
    """

    phase: Phase
    reason: str
    since: float | None = None
    exit_code: int | None = None
