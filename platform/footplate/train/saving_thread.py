"""The thread in which checkpoints are written while training goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["SavingThread"]


class SavingThread:
    """
    Does one piece of work at a time.

    A daemon: a process that is to end is not held up by a store that does not answer. Whoever
    wants the work done waits for it before.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._work: Callable[[], None] | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name="saving", daemon=True)

    @property
    def is_busy(self) -> bool:
        """Whether the work that was given is not done yet."""
        return self._work is not None

    def begin(self, work: Callable[[], None]) -> None:
        """
        Do this now, in the background.

        Args:
            work: Raises nothing.
        """
        with self._changed:
            assert self._work is None, "one piece of work at a time"
            assert not self._closing, "this thread has ended"
            self._work = work
            if self._thread.ident is None:
                self._thread.start()
            self._changed.notify_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the work is done; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._work is None, timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Wait so long for the work, and let the thread end after it; whether it has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _follow(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work is not None or self._closing)
                work = self._work
            if work is None:
                return
            work()
            with self._changed:
                self._work = None
                self._changed.notify_all()
