"""A thread between rank 0 and the store, so that a slow store never holds up the ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from footplate.errors import StoreError
from footplate.store import AttemptPaths, Progress, Store, to_json

__all__ = ["Outbox"]

_STOP_INTERVAL_S = 1.0
_CLOSING_S = 10.0


class Outbox:
    """
    Writes the newest progress, and looks for a word to stop.

    Nothing here raises or waits: what can't be written now is overtaken by what is newer.

    Args:
        flush: Called in the thread when :meth:`flush` was asked for.
    """

    def __init__(self, store: Store, attempt: AttemptPaths, flush: Callable[[], None]) -> None:
        self._store = store
        self._attempt = attempt
        self._flush = flush
        self._changed = threading.Condition()
        self._progress: Progress | None = None
        self._flush_wanted = False
        self._stop = False
        self._closing = False
        self._looked = 0.0
        self._thread = threading.Thread(target=self._follow, name="outbox", daemon=True)

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asked this attempt to save and end, as of a second ago."""
        return self._stop

    def show(self, progress: Progress) -> None:
        """Write this, unless something newer comes before that is possible."""
        with self._changed:
            self._progress = progress
            self._wake()

    def flush(self) -> None:
        """Call what was given for that, soon."""
        with self._changed:
            self._flush_wanted = True
            self._wake()

    def close(self) -> None:
        """Write what is left, as far as that is possible in some seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(_CLOSING_S)

    def _wake(self) -> None:
        if self._thread.ident is None:  # a rank that never reports has no thread
            self._thread.start()
        self._changed.notify()

    def _follow(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, _STOP_INTERVAL_S)
                progress, self._progress = self._progress, None
                flush, self._flush_wanted = self._flush_wanted, False
                closing = self._closing
            if flush:
                self._flush()
            if progress is not None:
                with suppress(StoreError):
                    self._store.put(self._attempt.progress, to_json(progress))
            if closing:
                return
            self._look()

    def _has_work(self) -> bool:
        return self._closing or self._flush_wanted or self._progress is not None

    def _look(self) -> None:
        now = time.monotonic()
        if not self._stop and now - self._looked >= _STOP_INTERVAL_S:
            self._looked = now
            with suppress(StoreError):
                self._stop = self._store.size(self._attempt.stop) is not None
