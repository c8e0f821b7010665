"""Processes: what one is there for, and ending everything that one has started."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

__all__ = ["DATA_TASK", "PURPOSE", "RANK", "kill_session"]

PURPOSE = "FOOTPLATE_PROCESS"
"""Names the variable by which Ray tells apart processes that import different things."""

RANK = "rank"
"""The purpose of those that train."""

DATA_TASK = "data"
"""The purpose of those that do what Ray Data wants done."""


def kill_session(leader: int) -> None:
    """
    SIGKILL every process of a session but this one.

    A process group is not enough: Ray gives each of its workers a group of its own, and they
    would go on for seconds, its agents for minutes. The session they all share stays.

    Args:
        leader: Process id of the session's leader, which need not live any more.
    """
    if not Path("/proc/self").exists():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            _kill_if_in_session(int(entry.name), leader)


def _kill_if_in_session(process: int, leader: int) -> None:
    # Processes end by themselves meanwhile, and those of other users are none of the session's.
    with suppress(ProcessLookupError, PermissionError):
        if os.getsid(process) == leader:
            os.kill(process, signal.SIGKILL)
