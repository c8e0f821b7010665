"""What the guard does, as Events: where those who look at a RayJob look for its story."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from footplate.runs.guard.act import Act, Deed

__all__ = ["REPORTER", "event_of", "rfc3339"]

REPORTER = "footplate-guard"

_MESSAGE_LENGTH = 1024  # longer ones are refused
_WARNINGS = {Deed.REPLACE_POD, Deed.RELEASE_QUOTA}


def event_of(act: Act, now: float, host: str) -> dict[str, Any]:
    """
    The Event of an act, about the RayJob that it was done for.

    Its name follows from the act, so that two guards do not tell the same twice.

    Args:
        now: Seconds since the epoch.
        host: Where the guard runs.
    """
    rayjob, time = act.rayjob, rfc3339(now)
    said = "/".join((act.reason, act.target.uid, act.sentence))
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{rayjob.name}.{digest}", "namespace": rayjob.namespace},
        "involvedObject": {
            "apiVersion": rayjob.kind.api_version,
            "kind": rayjob.kind.kind,
            "namespace": rayjob.namespace,
            "name": rayjob.name,
            "uid": rayjob.uid,
        },
        "type": "Warning" if act.deed in _WARNINGS else "Normal",
        "reason": act.reason,
        "message": act.sentence[:_MESSAGE_LENGTH],
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
        "reportingInstance": host,
    }


def rfc3339(now: float) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
