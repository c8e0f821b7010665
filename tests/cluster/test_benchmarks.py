"""The benchmarks that need a cluster: whether they measure at all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import Testbed

pytestmark = pytest.mark.cluster

_RUN = Path(__file__).resolve().parents[1] / "benchmarks" / "run.py"
_TIMEOUT_S = 120.0


def test_watch_is_measured(testbed: Testbed) -> None:
    """The short form ends with one line per figure, and leaves nothing in the cluster."""
    done = subprocess.run(
        [sys.executable, _RUN, "watch", "--short"],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    figures = [line.split() for line in done.stdout.splitlines() if line.startswith("watch.")]
    assert [name for name, *_ in figures] == [
        "watch.memory_ratio",
        "watch.peak_memory_ratio",
        "watch.bytes_ratio",
    ]
    for _, value, target, verdict in figures:
        assert float(value) > 0
        assert re.fullmatch(r"0\.\d+", target)
        assert verdict in ("met", "short")
    assert "bench-watch" not in testbed.kubectl("get", "namespaces", "-o", "name")
