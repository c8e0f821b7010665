"""What is written on the objects of a run: who paused it, who ended it, what belongs to it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from footplate.render import LABEL_PREFIX

__all__ = [
    "CANCELLED",
    "JOB_UID_LABEL",
    "NAME_LABEL",
    "QUEUE_LABEL",
    "SUSPENDED",
    "mark_of",
    "signature",
]

NAME_LABEL = f"{LABEL_PREFIX}/name"
"""On a RayJob and its pods: the name of the run."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On a RayJob: the LocalQueue that Kueue lets it in by."""

JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""On a Workload: the UID of the RayJob that it stands for."""

SUSPENDED = f"{LABEL_PREFIX}/suspended"
"""Annotation: its user has paused the run; when and who."""

CANCELLED = f"{LABEL_PREFIX}/cancelled"
"""Annotation: its user has ended the run; when and who."""


def mark_of(rayjob: Mapping[str, Any], mark: str) -> str | None:
    """When it was done, and by whom; None if it was not."""
    found = (rayjob["metadata"].get("annotations") or {}).get(mark)
    return found if isinstance(found, str) else None


def signature(now: float) -> str:
    """
    The text of a mark: ``2026-01-31T14:05:00Z by ada on workstation``.

    Args:
        now: Seconds since the epoch.
    """
    when = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"{when} by {_user()} on {socket.gethostname()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in many containers
        return f"user {os.getuid()}"
