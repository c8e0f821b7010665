"""What training code prints, labelled with the rank that printed it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

__all__ = ["labelled_output"]


@contextmanager
def labelled_output(rank: int) -> Iterator[None]:
    """
    Let each line that is printed meanwhile begin with ``[rank 0]`` or so.

    By that ``footplate run`` tells it from what Ray prints into the same log.
    """
    labelled = _Labelled(sys.stdout, f"[rank {rank}] ")
    with redirect_stdout(labelled):
        try:
            yield
        finally:
            labelled.close_line()


class _Labelled(io.TextIOBase):
    """A text stream that hands on whole lines behind a label."""

    def __init__(self, stream: TextIO, label: str) -> None:
        self._stream = stream
        self._label = label
        self._line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._stream.write(f"{self._label}{line}\n")
        self._stream.flush()
        return len(text)

    def close_line(self) -> None:
        """Hand on a last line that was not ended."""
        if self._line:
            self.write("\n")
