"""The bar of commands that read data: bytes, files and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from footplate.cli._sizes import size
from footplate.data.progress import ReadProgress
from footplate.runs.text import duration

__all__ = ["ReadingBar"]

_PLAIN_INTERVAL_S = 10.0


class ReadingBar(ReadProgress):
    """
    Shows on standard error how far the files are: a bar in a terminal, elsewhere plain lines.

    Args:
        doing: What is done, e.g. ``reading``.
        console: Where to.
        clock: Seconds, for the pace of plain lines and the time left.
    """

    def __init__(
        self,
        doing: str,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._doing = doing
        self._console = console or Console(stderr=True, highlight=False, emoji=False)
        self._clock = clock
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            TimeElapsedColumn(),
            console=self._console,
            expand=True,
            transient=True,
            disable=not self._is_live,
        )
        self._task = self._bar.add_task(doing, total=None, numbers="")
        self._lock = threading.Lock()
        self._files = self._all_files = self._bytes = self._all_bytes = 0
        self._began = self._told = clock()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def started(self, files: int, size: int) -> None:
        """Begin to show; without bytes, files are what is counted."""
        with self._lock:
            self._all_files, self._all_bytes = files, size
            self._began = self._told = self._clock()
            self._show()

    def read(self, size: int) -> None:
        """Count bytes."""
        with self._lock:
            self._bytes += size
            self._show()

    def finished(self, path: str) -> None:
        """Count a file."""
        with self._lock:
            self._files += 1
            self._show()

    def _show(self) -> None:
        done, total = self._done_of_total()
        if self._is_live:
            self._bar.update(self._task, completed=done, total=total, numbers=self._numbers())
        elif self._clock() - self._told >= _PLAIN_INTERVAL_S:
            self._told = self._clock()
            passed = self._told - self._began
            left = f", {duration(passed * (total - done) / done)} left" if done else ""
            self._console.print(f"{self._doing} {self._numbers()}{left}", markup=False)

    def _done_of_total(self) -> tuple[int, int]:
        if self._all_bytes:
            return self._bytes, self._all_bytes
        return self._files, self._all_files

    def _numbers(self) -> str:
        files = f"{self._files:,}/{self._all_files:,} files"
        if not self._all_bytes:
            return files
        return f"{size(self._bytes)} of {size(self._all_bytes)}, {files}"
