"""
What it takes to follow thousands of runs: memory, and bytes from the API server.

The peer lists them with the plain client each second. Both are processes of their own, and both
must know in the end what has changed meanwhile.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from byte_relay import ByteRelay
from figures import Figure
from many_rayjobs import ManyRayJobs, many_rayjobs
from testbed import Testbed

__all__ = ["measure"]

_FOLLOWER = Path(__file__).with_name("follow_runs.py")
_ARMS = ("footplate", "plain")
_MEMORY_TARGET = 0.3
_BYTES_TARGET = 0.02
# Changes that may be on their way when a follower ends.
_UNDERWAY = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Taken:
    """What following took, for one process."""

    settled_mb: float
    peak_mb: float
    mb_per_minute: float


def measure(*, short: bool) -> list[Figure]:
    """The first minute of following, with all that it takes to begin; several times in turn."""
    count, rounds, seconds = (200, 1, 6.0) if short else (2000, 2, 60.0)
    taken: dict[str, list[_Taken]] = {arm: [] for arm in _ARMS}
    testbed = Testbed.up()
    with many_rayjobs(testbed, count) as rayjobs, rayjobs.changing():
        for arm in _ARMS * rounds:
            taken[arm].append(_follow(arm, testbed, rayjobs, seconds))
    return [
        Figure(
            name="memory_ratio",
            value=_ratio(taken, "settled_mb"),
            target=_MEMORY_TARGET,
            better="less",
        ),
        Figure(
            name="peak_memory_ratio",
            value=_ratio(taken, "peak_mb"),
            target=_MEMORY_TARGET,
            better="less",
        ),
        Figure(
            name="bytes_ratio",
            value=_ratio(taken, "mb_per_minute"),
            target=_BYTES_TARGET,
            better="less",
        ),
    ]


def _ratio(taken: dict[str, list[_Taken]], field: str) -> float:
    ours, peers = (
        statistics.median(float(getattr(each, field)) for each in taken[arm]) for arm in _ARMS
    )
    return ours / peers


def _follow(arm: str, testbed: Testbed, rayjobs: ManyRayJobs, seconds: float) -> _Taken:
    with (
        tempfile.TemporaryDirectory(prefix="footplate-bench-") as folder,
        ByteRelay(testbed.kubeconfig, Path(folder)) as relay,
    ):
        done = subprocess.run(
            [sys.executable, _FOLLOWER, arm, relay.kubeconfig, rayjobs.namespace, str(seconds)],
            capture_output=True,
            text=True,
            check=True,
        )
        passed = relay.count() / 1e6
    told = json.loads(done.stdout)
    assert told["total"] == rayjobs.count, told
    assert 0 <= rayjobs.ended - told["ended"] <= _UNDERWAY, (told, rayjobs.ended)
    taken = _Taken(
        settled_mb=told["settled_mb"],
        peak_mb=told["peak_mb"],
        mb_per_minute=passed * 60 / told["seconds"],
    )
    print(
        f"{arm}: {told['total']} RayJobs, {told['looks']} looks in {told['seconds']:.0f} s; "
        f"memory {told['imported_mb']:.0f} MB imported + {taken.settled_mb:.1f} MB settled "
        f"({taken.peak_mb:.1f} at most); {taken.mb_per_minute:.2f} MB a minute",
        flush=True,
    )
    return taken
