"""A cluster that does not answer for a while, as those are told who wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from footplate.runs.observer import Observer

__all__ = ["Silence"]

# What is over by then nobody needs to know.
_PATIENCE_S = 5.0


class Silence:
    """
    Tells once that the cluster has been away for a while, and once that it is back.

    Args:
        observer: Is told.
        clock: Seconds that never go back.
    """

    def __init__(self, observer: Observer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._answered = clock()
        self._is_told = False

    def look(self, trouble: str | None, consequence: str) -> None:
        """
        Take note of how it is now; to be called again and again.

        Args:
            trouble: Why nothing new comes from the cluster, or None.
            consequence: What that means for who is told.
        """
        now = self._clock()
        if trouble is None:
            if self._is_told:
                self._observer.note("the cluster answers again")
            self._answered, self._is_told = now, False
        elif not self._is_told and now - self._answered > _PATIENCE_S:
            self._observer.note(f"{trouble}; {consequence}")
            self._is_told = True
