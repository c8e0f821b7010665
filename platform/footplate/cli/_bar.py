"""What all progress bars have in common."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["Bar", "ShareBar"]

_PLAIN_INTERVAL_S = 10.0


class Bar:
    """
    A bar on standard error, so that standard output is the result alone.

    Without a terminal there is a plain line now and then instead.

    Args:
        columns: After the spinner.
        console: Where to.
        clock: Seconds, for the pace of plain lines.
        fields: Of the one task, at first.
    """

    def __init__(
        self,
        *columns: ProgressColumn,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        **fields: Any,
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False, emoji=False)
        self._clock = clock
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._bar = Progress(
            SpinnerColumn(),
            *columns,
            console=self._console,
            expand=True,
            transient=True,
            disable=not self._is_live,
        )
        self._task = self._bar.add_task(fields.pop("description", ""), total=None, **fields)
        self._told_at = -_PLAIN_INTERVAL_S

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

    def note(self, text: str) -> None:
        """Print a sentence above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    @property
    def _is_line_due(self) -> bool:
        return self._clock() - self._told_at >= _PLAIN_INTERVAL_S


class ShareBar(Bar):
    """
    A bar that shows how much of a known whole is done, in numbers too.

    Its lock is for whoever is told of that from several threads.

    Args:
        doing: What is done, e.g. ``reading``.
        console: Where to.
        clock: Seconds, for the pace of plain lines.
    """

    def __init__(
        self,
        doing: str,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            TimeElapsedColumn(),
            console=console,
            clock=clock,
            description=doing,
            numbers="",
        )
        self._doing = doing
        self._lock = threading.Lock()
        self._told_at = clock()
