"""The bar of commands that read data: bytes, files and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from footplate.cli._bar import ShareBar
from footplate.cli._sizes import size
from footplate.data.progress import ReadProgress
from footplate.runs.text import duration

__all__ = ["ReadingBar"]


class ReadingBar(ShareBar, ReadProgress):
    """Shows on standard error how far the files are: a bar in a terminal, elsewhere plain lines."""

    def __init__(
        self,
        doing: str,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(doing, console=console, clock=clock)
        self._files = self._all_files = self._bytes = self._all_bytes = 0
        self._began = self._told_at

    def started(self, files: int, size: int) -> None:
        """Begin to show; without bytes, files are what is counted."""
        with self._lock:
            self._all_files, self._all_bytes = files, size
            self._began = self._told_at = self._clock()
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
        elif self._is_line_due:
            self._told_at = self._clock()
            passed = self._told_at - self._began
            left = f", {duration(passed * (total - done) / done)} left" if done else ""
            self.note(f"{self._doing} {self._numbers()}{left}")

    def _done_of_total(self) -> tuple[int, int]:
        if self._all_bytes:
            return self._bytes, self._all_bytes
        return self._files, self._all_files

    def _numbers(self) -> str:
        files = f"{self._files:,}/{self._all_files:,} files"
        if not self._all_bytes:
            return files
        return f"{size(self._bytes)} of {size(self._all_bytes)}, {files}"
