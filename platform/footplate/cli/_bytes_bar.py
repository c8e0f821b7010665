"""The bars of commands that read or list what is stored."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import TextColumn, TimeElapsedColumn

from footplate.cli._bar import Bar, ShareBar
from footplate.cli._sizes import size, thousands
from footplate.store import ObjectInfo

__all__ = ["BytesBar", "ListingBar"]


class BytesBar(ShareBar):
    """How many bytes of how many are done; to be called with both, from any thread."""

    def __call__(self, done: int, total: int) -> None:
        """Show it."""
        numbers = f"{size(done)} of {size(total)}"
        with self._lock:
            if self._is_live:
                self._bar.update(self._task, completed=done, total=total, numbers=numbers)
            elif self._is_line_due:
                self._told_at = self._clock()
                self.note(f"{self._doing} {numbers}")


class ListingBar(Bar):
    """
    How much was found so far; to be called with each object.

    Args:
        console: Where to.
        clock: Seconds, for the pace of plain lines.
    """

    def __init__(
        self,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            TextColumn("listing {task.fields[numbers]}"),
            TimeElapsedColumn(),
            console=console,
            clock=clock,
            numbers="",
        )
        self._told_at = clock()
        self._objects = self._bytes = 0

    def __call__(self, info: ObjectInfo) -> None:
        """Count it."""
        self._objects += 1
        self._bytes += info.size
        if self._is_live:
            self._bar.update(self._task, numbers=self._numbers())
        elif self._is_line_due:
            self._told_at = self._clock()
            self.note(f"listing: {self._numbers()}")

    def _numbers(self) -> str:
        return f"{thousands(self._objects, 'object')}, {size(self._bytes)}"
