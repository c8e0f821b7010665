"""What Ray says of how a driver ended: the only thing that KubeRay keeps of it."""

from __future__ import annotations

import re
from typing import NamedTuple

from footplate.runs.text import one_line

__all__ = ["DriverEnd", "driver_end", "driver_output"]

_EXIT_CODE = re.compile(r"exit code (\d{1,3})\b")
_LOG_HEADER = re.compile(r"^[^\n]*last available logs[^\n]*:\n")
# The error that ended a driver; a hint may follow it. What became of an attempt is no error.
_ERROR = re.compile(r"footplate: (?!\w+ after step \d+$)(.+)")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
# What Ray itself writes around the output of every driver.
_BOILERPLATE = re.compile(r"job_manager\.py:\d+ -- |^Running entrypoint for job ")


class DriverEnd(NamedTuple):
    """
    The end of a driver.

    Attributes:
        exit_code: None if the driver itself did not exit with one.
        said: Its error, or the last thing that it printed, or else what Ray and KubeRay say; may be
            empty.
    """

    exit_code: int | None
    said: str

    def __str__(self) -> str:
        if self.exit_code is None:
            return self.said or "no reason told"
        return f"exit code {self.exit_code}" + (f": {self.said}" if self.said else "")


def driver_end(message: str, reason: str) -> DriverEnd:
    """
    Read the end of a driver from a RayJob.

    Args:
        message: ``status.message``: a sentence, and up to 20,000 characters of the log.
        reason: ``status.reason``.
    """
    found = _EXIT_CODE.search(message.partition("\n")[0])
    if found is None:
        parts = [part for part in (one_line(reason), one_line(message)) if part]
        return DriverEnd(None, ": ".join(parts))
    lines = [_COLORS.sub("", line).strip() for line in driver_output(message)]
    printed = [line for line in lines if line and not _BOILERPLATE.search(line)]
    errors = [error[1] for line in printed if (error := _ERROR.match(line))]
    last = next(iter([*errors[-1:], *printed[-1:]]), "")
    return DriverEnd(int(found[1]), one_line(last.removeprefix("footplate: ")))


def driver_output(message: str) -> list[str]:
    """
    The last lines that a driver printed, if KubeRay has kept them.

    Args:
        message: ``status.message`` of the RayJob.
    """
    header = _LOG_HEADER.match(message)
    return message[header.end() :].splitlines() if header else []
