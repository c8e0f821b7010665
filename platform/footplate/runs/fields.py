"""
Reading Kubernetes objects that may lack anything.

An object comes from a server of another version, half-written, or from a cache that keeps only
some of its fields: what is not there, or not of the expected type, reads as empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

__all__ = [
    "Condition",
    "Fields",
    "condition",
    "field",
    "integer",
    "items",
    "string",
    "timestamp",
]

Fields = Mapping[str, Any]
"""An object, or a part of one, as the API gives it."""


class Condition(NamedTuple):
    """
    An entry of ``status.conditions``.

    Attributes:
        since: Of the last change of the status, seconds since the epoch.
    """

    status: str
    reason: str
    message: str
    since: float | None

    @property
    def is_true(self) -> bool:
        """Whether it holds; unknown counts as not."""
        return self.status == "True"


def field(of: Any, *path: str) -> Any:
    """What stands at a path; None if any part of it is not there."""
    for key in path:
        if not isinstance(of, Mapping):
            return None
        of = of.get(key)
    return of


def string(of: Any, *path: str) -> str:
    """The text at a path; empty if there is none."""
    found = field(of, *path)
    return found if isinstance(found, str) else ""


def integer(of: Any, *path: str) -> int:
    """The whole number at a path; 0 if there is none."""
    found = field(of, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def items(of: Any, *path: str) -> list[Fields]:
    """The objects of the list at a path; none if there is no list."""
    found = field(of, *path)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def timestamp(of: Any, *path: str) -> float | None:
    """The RFC 3339 time at a path, in seconds since the epoch; None if there is none."""
    try:
        when = datetime.fromisoformat(string(of, *path))
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def condition(of: Any, kind: str) -> Condition | None:
    """The condition of a type, if the object has it."""
    for entry in items(of, "status", "conditions"):
        if entry.get("type") == kind:
            return Condition(
                status=string(entry, "status"),
                reason=string(entry, "reason"),
                message=string(entry, "message"),
                since=timestamp(entry, "lastTransitionTime"),
            )
    return None
