"""The live line of a build: a bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from footplate.cli._sizes import size, thousands

if TYPE_CHECKING:
    from footplate.data.build import BuildProgress

__all__ = ["BuildBar"]

_PLAIN_INTERVAL_S = 10.0
_WORDS = {"transforming": "transforming", "writing": "writing files"}


class BuildBar:
    """
    Shows a build on standard error, so that standard output is the result alone.

    Args:
        console: Where to.
        clock: Seconds, for the pace of plain lines.
    """

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False, emoji=False)
        self._clock = clock
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            TimeElapsedColumn(),
            console=self._console,
            expand=True,
            transient=True,
            disable=not self._is_live,
        )
        self._task = self._bar.add_task("starting", total=None, numbers="")
        self._stage = ""
        self._shown_at = -_PLAIN_INTERVAL_S

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
        if not self._is_live and (begins or self._clock() - self._shown_at > _PLAIN_INTERVAL_S):
            self._shown_at = self._clock()
            line = f"{words} {progress.done:,} of {progress.total:,}; {numbers}"
            self._console.print(line, markup=False, soft_wrap=True)
