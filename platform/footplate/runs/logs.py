"""What a run printed, from its store: while it runs, and after its pods are gone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from footplate.runs.store_view import StoreView, newest_attempt
from footplate.store import read_log

__all__ = ["LogReader"]

_PAUSE_S = 1.0


class LogReader:
    """
    Reads the logs of a run's attempts, one after the other.

    Args:
        has_ended: Whether nothing can come any more.
        sleep: Waits between looks, in seconds.
    """

    def __init__(
        self,
        view: StoreView,
        has_ended: Callable[[], bool],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._view = view
        self._has_ended = has_ended
        self._sleep = sleep

    def lines(
        self, *, follow: bool = False, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[str]:
        """
        Lines without their ends; see :meth:`footplate.runs.handle.Run.logs`.

        Raises:
            StoreError: If the store can't be read.
        """
        there = self._attempts(attempt)
        positions: dict[int, _Position] = {number: _Position() for number in there}
        old = (line for number in there for line in self._new(number, positions, attempt is None))
        yield from old if tail is None else deque(old, maxlen=tail)
        while follow:
            # First this: what was printed before the end is then read after it.
            has_ended = self._has_ended()
            for number in self._attempts(attempt):
                positions.setdefault(number, _Position())
                yield from self._new(number, positions, attempt is None)
            if has_ended:
                break
            self._sleep(_PAUSE_S)
        for position in positions.values():
            if position.rest:
                yield position.rest

    def _attempts(self, wanted: int | None) -> list[int]:
        newest = newest_attempt(self._view.open(), self._view.record.paths)
        return list(range(1, newest + 1)) if wanted is None else [wanted]

    def _new(self, attempt: int, positions: dict[int, _Position], headed: bool) -> Iterator[str]:
        position = positions[attempt]
        text, position.next = read_log(
            self._view.open(), self._view.record.paths, attempt, start=position.next
        )
        if not text:
            return
        if headed and not position.is_begun and len(positions) > 1:
            yield f"--- attempt {attempt} ---"
        position.is_begun = True
        *whole, position.rest = (position.rest + text).split("\n")
        yield from whole


class _Position:
    """How far the log of an attempt has been read."""

    def __init__(self) -> None:
        self.next = 0
        self.rest = ""
        self.is_begun = False
