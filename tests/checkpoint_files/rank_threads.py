"""Ranks as threads of one process, which tell each other what they have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["Gather", "RankThreads"]

T = TypeVar("T")
Gather = Callable[[Any], list[Any]]

_TIMEOUT_S = 60


class RankThreads:
    """
    A group of ranks.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count, timeout=_TIMEOUT_S)
        self._values: list[Any] = [None] * count

    def gather_of(self, rank: int) -> Gather:
        """What gives one of them what each of them has."""

        def gather(value: Any) -> list[Any]:
            self._values[rank] = value
            self._barrier.wait()
            values = list(self._values)
            self._barrier.wait()
            return values

        return gather

    def run(self, action: Callable[[int], T]) -> list[T]:
        """What an action returns for each of them; the first error is raised."""
        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(action, range(self.count)))
