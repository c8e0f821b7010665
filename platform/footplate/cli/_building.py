"""The live line of a build: a bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from footplate.cli._bar import Bar
from footplate.cli._sizes import size, thousands

if TYPE_CHECKING:
    from footplate.data.build import BuildProgress

__all__ = ["BuildBar"]

_WORDS = {"transforming": "transforming", "writing": "writing files"}


class BuildBar(Bar):
    """
    Shows a build.

    Args:
        console: Where to; left out: standard error.
        clock: Seconds, for the pace of plain lines.
    """

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            TimeElapsedColumn(),
            console=console,
            clock=clock,
            description="starting",
            numbers="",
        )
        self._stage = ""

    def show(self, progress: BuildProgress) -> None:
        """Show where the build is."""
        words = _WORDS[progress.stage]
        numbers = f"{thousands(progress.rows, 'sample')}, {size(progress.size)}"
        begins = progress.stage != self._stage
        self._stage = progress.stage
        if begins:
            # What is left is judged by the pace of this stage, without what was there before it.
            self._bar.reset(
                self._task,
                total=progress.total,
                completed=progress.done,
                description=words,
                numbers=numbers,
            )
        else:
            self._bar.update(self._task, completed=progress.done, numbers=numbers)
        if not self._is_live and (begins or self._is_line_due):
            self._told_at = self._clock()
            self.note(f"{words} {progress.done:,} of {progress.total:,}; {numbers}")
