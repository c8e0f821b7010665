"""The live line of a run: a bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
)

from footplate.cli._bar import Bar
from footplate.runs.text import measures
from footplate.store import Progress as Record
from footplate.store import RunPaths

__all__ = ["LiveProgress", "describe"]

_WORDS = {
    "preparing": "preparing data",
    "starting": "starting Ray and the workers",
    "training": "training",
    "evaluating": "evaluating",
    "saving": "saving a checkpoint",
    "finishing": "finishing",
}


class LiveProgress(Bar):
    """
    Shows a run.

    Args:
        console: Where to; left out: standard error.
        clock: Seconds, for the pace of plain lines.
    """

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(
            TextColumn("{task.fields[stage]}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            console=console,
            clock=clock,
            stage="starting",
            numbers="",
        )
        self._shown_stage: str | None = None
        self._shown_line = ""

    def printed(self, line: str) -> None:
        """Print what training code printed."""
        self.note(line)

    def started(self, run: RunPaths, attempt: int, log: Path) -> None:
        """Say which run this is, and where its log grows."""
        again = f", attempt {attempt}" if attempt > 1 else ""
        self.note(f"{run.name} {run.uid}{again}; log: {log}")

    def progress(self, progress: Record) -> None:
        """Show where the run is."""
        stage, numbers = _WORDS.get(progress.stage, progress.stage), describe(progress)
        self._bar.update(
            self._task,
            stage=stage,
            numbers=numbers,
            completed=progress.step,
            total=progress.total_steps or None,
        )
        if not self._is_live:
            self._plain(progress, stage, numbers)

    def _plain(self, progress: Record, stage: str, numbers: str) -> None:
        overdue = self._is_line_due
        # Evaluating and saving come and go; only what begins a phase is worth a line at once.
        begins = progress.stage in ("preparing", "starting", "training", "finishing")
        if overdue or (begins and self._shown_stage != progress.stage):
            steps = f" step {progress.step}/{progress.total_steps}" if progress.total_steps else ""
            line = f"{stage}{steps} {numbers}".rstrip()
            self._told_at = self._clock()
            if line != self._shown_line:
                self.note(line)
            self._shown_line = line
        if begins:
            self._shown_stage = progress.stage


def describe(progress: Record) -> str:
    """Loss, speed and time left, as far as known."""
    return "  ".join(measures(progress))
