"""How much slower steps are while a checkpoint is being written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median

__all__ = ["Pace"]

# Steps that are remembered of either kind, and the fewest from which anything is concluded.
_REMEMBERED = 200
_FEWEST = 5


class Pace:
    """
    The durations of steps, with and without a save under way.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last: float | None = None
        self._alone: deque[float] = deque(maxlen=_REMEMBERED)
        self._writing: deque[float] = deque(maxlen=_REMEMBERED)

    def step(self, *, is_writing: bool) -> None:
        """Note the end of a step."""
        now = self._clock()
        if self._last is not None:
            (self._writing if is_writing else self._alone).append(now - self._last)
        self._last = now

    def interrupt(self) -> None:
        """Leave out the step under way: it takes longer for another reason."""
        self._last = None

    @property
    def slowdown(self) -> float:
        """The share of the time of writing that training loses by it; 0 if that is not known."""
        if min(len(self._alone), len(self._writing)) < _FEWEST:
            return 0.0
        return max(1 - median(self._alone) / median(self._writing), 0.0)
