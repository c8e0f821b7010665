"""What a run printed, from its store: while it runs, and after its pods are gone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from footplate.errors import RunNotFoundError, StoreError
from footplate.runs.observer import Observer, SilentObserver
from footplate.runs.store_view import StoreView, newest_attempt
from footplate.store import newest_segments, segments

__all__ = ["LogReader"]

_PAUSE_S = 1.0


class LogReader:
    """
    Reads the logs of a run's attempts, one after the other.

    Args:
        has_ended: Whether nothing can come any more.
        observer: Is told when the store goes away while it is followed, and when it is back.
        sleep: Waits between looks, in seconds.
    """

    def __init__(
        self,
        view: StoreView,
        has_ended: Callable[[], bool],
        *,
        observer: Observer | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._view = view
        self._has_ended = has_ended
        self._observer = observer or SilentObserver()
        self._sleep = sleep

    def lines(
        self, *, follow: bool = False, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[str]:
        """
        Lines without their ends; see :meth:`footplate.runs.handle.Run.logs`.

        Raises:
            RunNotFoundError: If there is no such attempt.
            StoreError: If the store can't be read: at the beginning, or after the end of the run.
        """
        if attempt is not None:
            self._check_there(attempt)
        cursor = _Cursor(self._view, attempt)
        if tail is None:
            yield from cursor.new_lines()
        else:
            last = cursor.last_lines(tail)
            # Without more to come the line that was begun is one of the last.
            yield from deque(last if follow else [*last, *cursor.rest()], maxlen=tail)
        if follow:
            yield from self._coming(cursor)
        yield from cursor.rest()

    def _check_there(self, attempt: int) -> None:
        record = self._view.record
        newest = newest_attempt(self._view.open(), record.paths)
        if attempt > newest:
            there = {0: "there is none yet", 1: "there is attempt 1 alone"}
            known = there.get(newest, f"there are attempts 1 to {newest}")
            raise RunNotFoundError(f"{record.name} has no attempt {attempt}: {known}")

    def _coming(self, cursor: _Cursor) -> Iterator[str]:
        is_away = False
        while True:
            # First this: what was printed before the end is then read after it.
            has_ended = self._has_ended()
            try:
                yield from cursor.new_lines()
            except StoreError as error:
                if has_ended:
                    raise
                if not is_away:
                    self._observer.note(f"no logs for now: {error.message}")
                is_away = True
            else:
                if is_away:
                    self._observer.note("the store answers again")
                is_away = False
            if has_ended:
                return
            self._sleep(_PAUSE_S)


class _Cursor:
    """
    How far the logs have been read: a place in one attempt, whose predecessors are done with.

    Args:
        attempt: Of this one alone; None: from the first to the newest.
    """

    def __init__(self, view: StoreView, attempt: int | None) -> None:
        self._view = view
        self._is_alone = attempt is not None
        self._attempt = attempt or 1
        self._newest = attempt or 0
        self._after = 0
        self._rest = ""
        self._is_begun = False

    def new_lines(self) -> Iterator[str]:
        """What has been printed since the last call, in this attempt and then in newer ones."""
        self._look_for_newer()
        yield from self._new_lines_of_attempt()
        while self._attempt < self._newest:
            yield from self.rest()
            self._attempt, self._after, self._is_begun = self._attempt + 1, 0, False
            yield from self._new_lines_of_attempt()

    def last_lines(self, count: int) -> list[str]:
        """
        At least the last so many lines of all that is there, which is then done with.

        Reads backwards, and no more than it takes.
        """
        self._look_for_newer()
        self._attempt = max(1, self._newest)
        lines: list[str] = []
        for number in range(self._attempt, self._attempt - 1 if self._is_alone else 0, -1):
            lines = [*self._last_lines_of(number, count - len(lines)), *lines]
            if len(lines) >= count:
                break
        return lines

    def rest(self) -> Iterator[str]:
        """The line that was begun and, now that this is asked, has no end to come."""
        rest, self._rest = self._rest, ""
        if rest:
            yield rest

    def _look_for_newer(self) -> None:
        if not self._is_alone:
            run = self._view.record.paths
            self._newest = newest_attempt(self._view.open(), run, known=self._newest)

    def _new_lines_of_attempt(self) -> Iterator[str]:
        run = self._view.record.paths
        found = segments(self._view.open(), run, self._attempt, after=self._after)
        for number, text in found:
            heading = self._heading(self._attempt) if not self._is_begun else []
            *whole, self._rest = (self._rest + text).split("\n")
            self._after, self._is_begun = number, True
            yield from (*heading, *whole)

    def _last_lines_of(self, attempt: int, count: int) -> list[str]:
        run = self._view.record.paths
        texts, last = newest_segments(self._view.open(), run, attempt, lines=count)
        *whole, rest = "".join(texts).split("\n")
        if attempt == self._attempt:
            self._after, self._rest, self._is_begun = last, rest, bool(texts)
        elif rest:
            whole.append(rest)
        # Should the attempt have begun before these lines, then there are enough without this.
        return [*self._heading(attempt), *whole] if texts else []

    def _heading(self, attempt: int) -> list[str]:
        has_others = self._newest > 1 and not self._is_alone
        return [f"--- attempt {attempt} ---"] if has_others else []
