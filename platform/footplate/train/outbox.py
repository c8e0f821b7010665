"""A thread between rank 0 and the store, so that a slow store never holds up the ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from pydantic import BaseModel

from footplate.errors import StoreError
from footplate.store import (
    AttemptPaths,
    Notice,
    Progress,
    StopRequest,
    Store,
    read_record_if_there,
    to_json,
)

__all__ = ["Outbox"]

R = TypeVar("R", bound=BaseModel)

_LOOK_INTERVAL_S = 1.0
_CLOSING_S = 10.0


class Outbox:
    """
    Writes the newest of each record, and looks for a word to stop and for bad news.

    Nothing here raises or waits: what can't be written now is overtaken by what is newer.

    Args:
        flush: Called in the thread when :meth:`flush` was asked for.
    """

    def __init__(self, store: Store, attempt: AttemptPaths, flush: Callable[[], None]) -> None:
        self._store = store
        self._attempt = attempt
        self._flush = flush
        self._changed = threading.Condition()
        self._records: dict[str, BaseModel] = {}
        self._flush_wanted = False
        self._stop: StopRequest | None = None
        self._notice: Notice | None = None
        self._closing = False
        self._looked = 0.0
        self._thread = threading.Thread(target=self._follow, name="outbox", daemon=True)

    @property
    def stop(self) -> StopRequest | None:
        """What somebody who wants this attempt to save and end has said, as of a second ago."""
        return self._stop

    @property
    def notice(self) -> Notice | None:
        """What the driver has said about machines that go away, as of a second ago."""
        return self._notice

    def show(self, progress: Progress) -> None:
        """Write this, unless something newer comes before that is possible."""
        self.write(self._attempt.progress, progress)

    def write(self, path: str, record: BaseModel) -> None:
        """Write this there, unless something newer for the same place comes before."""
        with self._changed:
            self._records[path] = record
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
                self._changed.wait_for(self._has_work, _LOOK_INTERVAL_S)
                records, self._records = self._records, {}
                flush, self._flush_wanted = self._flush_wanted, False
                closing = self._closing
            if flush:
                self._flush()
            for path, record in records.items():
                with suppress(StoreError):
                    self._store.put(path, to_json(record))
            if closing:
                return
            self._look()

    def _has_work(self) -> bool:
        return self._closing or self._flush_wanted or bool(self._records)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_INTERVAL_S:
            return
        self._looked = now
        with suppress(StoreError):
            if self._stop is None:
                self._stop = self._read(self._attempt.stop, StopRequest)
            # What was said last counts: the time may have become shorter.
            self._notice = self._read(self._attempt.notice, Notice) or self._notice

    def _read(self, path: str, kind: type[R]) -> R | None:
        return read_record_if_there(self._store, path, kind)
