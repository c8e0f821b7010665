"""What training code printed, picked out of a run's log as it grows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PrintedLines"]

# Ray's label of a process, then ours of a rank (see footplate.train.output); or our label of a
# command, behind which Ray may have labelled a rank.
_PRINTED = re.compile(rb"^(?:\(RayTrainWorker pid=[^)]*\) (\[rank \d+\] .*)|\[command\] (.*))$")


class PrintedLines:
    """
    Follows a log.

    Args:
        log: A file that another process writes.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0

    def new(self) -> Iterator[str]:
        """The lines printed since the last call, the label of their rank included."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            if printed := _PRINTED.match(line):
                yield (printed[1] or printed[2]).decode(errors="replace")
