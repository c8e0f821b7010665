"""Looking at the stores of many runs, beside what the cluster says of them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping

from footplate.runs.store_view import StoreView

__all__ = ["StoreReader"]

_INTERVAL_S = 1.5
_LONGEST_PAUSE_S = 60.0
# For each store: enough for hundreds of runs in one.
_THREADS = 4


class _Followed:
    """A run that is looked at, and when to do so again."""

    def __init__(self, uid: str, view: StoreView) -> None:
        self.uid = uid
        self.view = view
        self.due = 0.0
        self.is_waiting = False  # in the queue, or being looked at


class StoreReader:
    """
    Looks at several runs again and again, in threads of its own.

    A store that does not answer holds up a thread for minutes. That must not keep anybody from
    seeing what the cluster says, or what other stores do: each store has its own threads. One
    that fails is asked less often.

    Args:
        interval_s: Between two looks at a run, at least.
    """

    def __init__(self, interval_s: float = _INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._followed: dict[str, _Followed] = {}
        self._lanes: dict[str, _Lane] = {}

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(self, *details: object) -> None:
        self._followed = {}
        for lane in self._lanes.values():
            lane.close()

    def follow(self, views: Mapping[str, StoreView]) -> None:
        """Look at those of these that are due, and at no others; to be called again and again."""
        self._followed = {
            uid: self._followed.get(uid) or _Followed(uid, view) for uid, view in views.items()
        }
        now = time.monotonic()
        for followed in self._followed.values():
            if not followed.is_waiting and followed.due <= now:
                followed.is_waiting = True
                self._lanes.setdefault(followed.view.place, _Lane(self._look)).put(followed)

    def _look(self, followed: _Followed) -> None:
        # While it waited, those who asked may have lost interest.
        if self._followed.get(followed.uid) is followed:
            began = time.monotonic()
            followed.view.look()
            pause_s = self._interval_s * 2.0 ** min(followed.view.failures, 10)
            followed.due = began + min(pause_s, max(_LONGEST_PAUSE_S, self._interval_s))
        followed.is_waiting = False


class _Lane:
    """
    The threads of one store: as many as have something to do, up to a bound.

    Args:
        look: What they do with each run.
    """

    def __init__(self, look: Callable[[_Followed], None]) -> None:
        self._look = look
        self._queue: queue.SimpleQueue[_Followed | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0

    def put(self, followed: _Followed) -> None:
        """Have it looked at; from one thread alone."""
        self._queue.put(followed)
        if not self._idle.acquire(blocking=False) and self._threads < _THREADS:
            self._threads += 1
            threading.Thread(target=self._work, name="store", daemon=True).start()

    def close(self) -> None:
        """Let the threads end: they are not joined, for one may be waiting and holds nothing."""
        for _ in range(self._threads):
            self._queue.put(None)

    def _work(self) -> None:
        while (followed := self._queue.get()) is not None:
            self._look(followed)
            self._idle.release()
