"""An end that reaches threads which are blocked in a read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Stop"]


class Stop(threading.Event):
    """
    An event that, when set, also interrupts what waits for bytes from the API server.

    Nothing can wait for an event and for a socket at the same time. So whoever reads leaves
    here how to interrupt the read, and :meth:`set` does it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._interrupts: list[Callable[[], None]] = []

    def set(self) -> None:
        """End it: now, and whatever begins to read from now on."""
        super().set()
        with self._lock:
            for interrupt in self._interrupts:
                interrupt()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Have this called once the end is set, be it already, until the block is left."""
        with self._lock:
            self._interrupts.append(interrupt)
            if self.is_set():
                interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)
