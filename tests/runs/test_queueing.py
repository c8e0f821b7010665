"""Kueue's prose in our words, for what no recorded cluster said."""

from __future__ import annotations

import pytest

from footplate.runs.fields import Condition
from footplate.runs.queueing import deactivation, eviction, pending

_UNUSED = "insufficient unused quota for {} in flavor {}, 2 more needed"
_NEVER = (
    "insufficient quota for {} in flavor {}, previously considered podsets requests ({}) "
    "+ current podset request ({}) > maximum capacity (8)"
)
_WORKERS = "couldn't assign flavors to pod set workers: "


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            f"{_WORKERS}{_UNUSED.format('cpu', 'a')}, {_UNUSED.format('nvidia.com/gpu', 'a')}",
            "queued in q: 2 more cpu needed than is unused in flavor a, 2 more nvidia.com/gpu "
            "needed than is unused in flavor a (another workload has them)",
        ),
        (
            f"{_WORKERS}{_UNUSED.format('cpu', 'a')}. Preempting 3 workload(s) failed, will retry.",
            "queued in q: 2 more cpu needed than is unused in flavor a (another workload has "
            "them); preempting 3 workloads failed, Kueue tries again",
        ),
        (
            # One flavor is too small, the other is only in use.
            f"{_WORKERS}{_NEVER.format('gpu', 'a', 0, 9)}, {_UNUSED.format('gpu', 'b')}",
            "queued in q: 2 more gpu needed than is unused in flavor b (another workload has them)",
        ),
        (
            # What is in use does not help where the flavor is too small anyway.
            f"{_WORKERS}{_NEVER.format('gpu', 'a', 1, 9)}, {_UNUSED.format('cpu', 'a')}",
            "never fits: asks for 10 gpu, flavor a has 8 at most",
        ),
        (
            f"{_WORKERS}{_NEVER.format('cpu', 'a', '500m', '9')}",
            "never fits: asks for 500m + 9 cpu, flavor a has 8 at most",
        ),
        (
            f"{_WORKERS}{_UNUSED.format('cpu', 'a')}; couldn't assign flavors to pod set head: "
            f"{_NEVER.format('cpu', 'a', 0, '9500m')}",
            "never fits: asks for 9500m cpu, flavor a has 8 at most",
        ),
        ("Something\nnew", "queued in q: Something new"),
        ("", "queued in q: Kueue has not looked at it yet"),
        ("{ns} is odd", "queued in q: {ns} is odd"),
    ],
)
def test_pending(message: str, told: str) -> None:
    """Waiting and never fitting are told apart, flavor by flavor and pod set by pod set."""
    assert pending(message, "q", "team") == told


@pytest.mark.parametrize(
    ("reason", "message", "told"),
    [
        ("Preempted", "Preempted to accommodate a workload", "evicted: Preempted to accommodate"),
        (
            "Preempted",
            "Preempted to accommodate a workload (UID: u, JobUID: j)",
            "preempted by another workload (JobUID j)",
        ),
        ("ClusterQueueStopped", "", "evicted: ClusterQueueStopped"),
    ],
)
def test_eviction(reason: str, message: str, told: str) -> None:
    """Who took the place is named if Kueue tells."""
    assert eviction(Condition("True", reason, message, None)).startswith(told)


def test_deactivation() -> None:
    """Kueue gives its reason; a person gives none."""
    assert deactivation(None).startswith("deactivated by someone else")
    limit = Condition("True", "DeactivatedDueToRequeuingLimitExceeded", "", None)
    assert deactivation(limit) == (
        "deactivated by Kueue: no reason told (DeactivatedDueToRequeuingLimitExceeded)"
    )
