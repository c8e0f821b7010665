"""What the processes of a run are, by the title that Ray gives to each."""

from __future__ import annotations

import psutil

__all__ = ["command_line", "is_rank"]


def command_line(process: psutil.Process) -> str:
    """How a process is called; nothing if it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def is_rank(process: psutil.Process) -> bool:
    """Whether a process trains."""
    return "RayTrainWorker" in command_line(process)
