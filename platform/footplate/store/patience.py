"""
Patience with a store: what is tried again, when, and how much is asked for at once.

A store that throttles is asked for less and never given up: it works, and goes on working only if
nobody insists. Everything else that may pass is given up after a time; what can't pass at once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from footplate.errors import ObjectNotFoundError, StoreError, StoreFullError
from footplate.store.objects import is_no_file, was_refused, was_throttled

__all__ = ["Pace", "Patience", "ReadingStopped", "patiently", "with_patience"]

T = TypeVar("T")

# How often a thread that waits for its turn looks whether it is still wanted.
_LOOK_S = 0.1


class ReadingStopped(BaseException):
    """Nobody waits any more for what was to be read; no error, so nothing takes it for one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """
    When a request is made again that a store did not answer well.

    Attributes:
        give_up_s: From the first failure on; throttling does not count.
        first_wait_s: The longest wait after one failure; each further one doubles it.
        longest_wait_s: No wait is longer.
        requests: At once, at most. A store that throttles gets fewer.
    """

    give_up_s: float = 600.0
    first_wait_s: float = 0.1
    longest_wait_s: float = 20.0
    requests: int = 32

    def wait_s(self, failures: int, chance: float) -> float:
        """
        How long to wait after so many failures: evenly from nothing to the longest (full jitter).

        Args:
            failures: From 1.
            chance: From 0 to 1.
        """
        # The exponent is bounded: throttling may go on for long.
        longest = min(self.first_wait_s * 2.0 ** min(failures - 1, 64), self.longest_wait_s)
        return longest * chance


class Pace:
    """
    How many requests are made at once: fewer when the store asks for it, then slowly more.

    The rule is that of TCP: half of them on a refusal, one more for a round that went well.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = float(most)
        self._running = 0
        self._halved = 0.0
        self._changed = threading.Condition()

    @property
    def allowed(self) -> int:
        """Requests at once at the moment."""
        return int(self._allowed)

    @contextmanager
    def turn(self, stopped: threading.Event) -> Iterator[None]:
        """
        Wait until one more request may be made.

        Raises:
            ReadingStopped: If it has become needless meanwhile.
        """
        with self._changed:
            while self._running >= self.allowed:
                self._changed.wait(_LOOK_S)
                if stopped.is_set():
                    raise ReadingStopped
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def slow_down(self, started: float, now: float) -> None:
        """
        A request that was made at ``started`` was one too many.

        Those that were under way together with it say nothing more.
        """
        with self._changed:
            if started >= self._halved:
                self._allowed = max(1.0, self._allowed / 2)
                self._halved = now

    def speed_up(self) -> None:
        """A request went well."""
        with self._changed:
            self._allowed = min(float(self._most), self._allowed + 1 / self._allowed)
            self._changed.notify()


def patiently(
    action: Callable[[], T],
    patience: Patience,
    pace: Pace,
    stopped: threading.Event,
    *,
    clock: Callable[[], float] = time.monotonic,
    chance: Callable[[], float] = random.random,
) -> T:
    """
    The result of a request, made again until it is answered well.

    Args:
        stopped: Set when nobody waits for it any more.

    Raises:
        ObjectNotFoundError: At once, as any answer that will not change.
        StoreError: After ``patience.give_up_s`` without a good answer.
        ReadingStopped: If ``stopped`` was set before there was one.
    """
    failures, failing_since = 0, None
    while True:
        if stopped.is_set():
            raise ReadingStopped
        started = clock()
        try:
            with pace.turn(stopped):
                started = clock()
                result = action()
        except StoreError as error:
            if _is_final(error):
                raise
            failures += 1
            if was_throttled(error):
                pace.slow_down(started, clock())
                failing_since = None
            else:
                failing_since = started if failing_since is None else failing_since
                _give_up_in_time(error, clock() - failing_since, failures, patience)
        else:
            pace.speed_up()
            return result
        if stopped.wait(patience.wait_s(failures, chance())):
            raise ReadingStopped


def with_patience(action: Callable[[], T]) -> T:
    """
    The result of something that asks a store for little, made again until it is answered well.

    Raises:
        StoreError: As :func:`patiently`, by the patience that readers have.
    """
    return patiently(action, Patience(), Pace(1), threading.Event())


def _is_final(error: StoreError) -> bool:
    is_known = isinstance(error, (ObjectNotFoundError, StoreFullError))
    return is_known or is_no_file(error) or was_refused(error)


def _give_up_in_time(error: StoreError, waited_s: float, tries: int, patience: Patience) -> None:
    if waited_s >= patience.give_up_s:
        raise StoreError(
            f"{error.message} ({tries} tries in {waited_s:.0f} s)", error.hint
        ) from error
