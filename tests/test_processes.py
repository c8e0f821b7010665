"""Nothing that a process started outlives the order to end it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from footplate.processes import kill_session

# A leader, and a child of it that has left its process group, as Ray's workers do.
_LEADER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, process_group=0)
print(child.pid, flush=True)
input()
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="not on this platform: needs /proc")
def test_session_ends_whole() -> None:
    """Processes of the session end, whatever their process group; this one does not."""
    leader = subprocess.Popen(
        [sys.executable, "-c", _LEADER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert leader.stdout is not None
    child = psutil.Process(int(leader.stdout.readline()))
    assert child.is_running()
    kill_session(leader.pid)
    leader.communicate(timeout=30)
    gone, alive = psutil.wait_procs([child], timeout=30)
    assert (len(gone), alive) == (1, [])


def test_session_that_is_gone_is_no_error() -> None:
    """A leader that has ended and left nothing is fine."""
    leader = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    leader.wait()
    kill_session(leader.pid)
