"""Who watches a run."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from footplate.store import Progress, RunPaths

__all__ = ["Observer", "SilentObserver"]


class Observer(Protocol):
    """Who watches a run; see :class:`SilentObserver` for one that does not."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def started(self, run: RunPaths, attempt: int, log: Path) -> None:
        """An attempt begins; its output goes to ``log``."""

    def printed(self, line: str) -> None:
        """A line that training code printed, with the label of its rank."""

    def progress(self, progress: Progress) -> None:
        """Where it is now; called several times a second."""


class SilentObserver:
    """Watches nothing."""

    def note(self, text: str) -> None:
        """Drop it."""

    def started(self, run: RunPaths, attempt: int, log: Path) -> None:
        """Drop it."""

    def printed(self, line: str) -> None:
        """Drop it."""

    def progress(self, progress: Progress) -> None:
        """Drop it."""
