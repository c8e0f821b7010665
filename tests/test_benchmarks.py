"""The benchmarks that need nothing but this machine: whether they measure at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_RUN = Path(__file__).resolve().parent / "benchmarks" / "run.py"


def test_rendering_is_measured() -> None:
    """The short form ends with its figure; whether that is good depends on the machine."""
    done = subprocess.run(
        [sys.executable, _RUN, "render", "--short"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    name, value, target, verdict = done.stdout.splitlines()[-1].split()
    assert (name, target) == ("render.specs_per_s", "2000")
    assert float(value) > 0
    assert verdict in ("met", "short")
