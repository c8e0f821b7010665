"""What the store says of a run that is somewhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from footplate.errors import FootplateError
from footplate.spec import Job
from footplate.store import (
    AttemptResult,
    Notes,
    Progress,
    RunPaths,
    RunRecord,
    Store,
    open_store,
    read_record_if_there,
)

__all__ = ["StoreReader", "StoreSight", "StoreView", "job_of", "newest_attempt"]

_INTERVAL_S = 2.0


def job_of(record: RunRecord) -> Job:
    """
    The job of a record.

    Raises:
        SpecError: If it was written by another version, whose specs this one does not know.
    """
    # Relative paths of it are another machine's; those of the store are URIs.
    return Job.from_dict(record.spec, folder=Path.cwd(), source=record.name)


def newest_attempt(store: Store, run: RunPaths, *, known: int = 0) -> int:
    """
    The number of the newest claimed attempt, 0 for none.

    Args:
        known: One that is known to be claimed; attempts are numbered without gaps.
    """
    while store.size(run.attempt(known + 1).claim) is not None:
        known += 1
    return known


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreSight:
    """
    What was seen in the store.

    Attributes:
        attempt: The newest; 0 for none yet.
        trouble: Why nothing new can be seen, or None.
    """

    attempt: int = 0
    progress: Progress | None = None
    notes: Notes | None = None
    result: AttemptResult | None = None
    cancelled: bool = False
    trouble: str | None = None


class StoreView:
    """
    Looks at one run in its store.

    Args:
        record: As the identity of the run says.
    """

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._store: Store | None = None
        self._sight = StoreSight()

    @property
    def sight(self) -> StoreSight:
        """What was seen last."""
        return self._sight

    def look(self) -> StoreSight:
        """Look again; what can't be seen now stays as it was seen last."""
        try:
            self._sight = self._read()
        except FootplateError as error:
            self._sight = replace(self._sight, trouble=error.message)
        return self._sight

    def look_within(self, seconds: float) -> StoreSight:
        """Look again, but wait no longer than that for a store that does not answer."""
        looking = threading.Thread(target=self.look, name="store", daemon=True)
        looking.start()
        looking.join(seconds)
        return self._sight

    def open(self) -> Store:
        """
        The store of the run.

        Raises:
            StoreError: If it can't be opened.
            SpecError: If the spec is one that this version does not know.
        """
        if self._store is None:
            self._store = open_store(job_of(self.record))
        return self._store

    def _read(self) -> StoreSight:
        store, run = self.open(), self.record.paths
        attempt = newest_attempt(store, run, known=self._sight.attempt)
        cancelled = store.size(run.cancelled) is not None
        if not attempt:
            return StoreSight(cancelled=cancelled)
        paths = run.attempt(attempt)
        return StoreSight(
            attempt=attempt,
            progress=read_record_if_there(store, paths.progress, Progress),
            notes=read_record_if_there(store, paths.notes, Notes),
            result=read_record_if_there(store, paths.result, AttemptResult),
            cancelled=cancelled,
        )


class StoreReader:
    """
    Looks at several runs again and again, in a thread of its own.

    A store that does not answer must not keep anybody from seeing what the cluster says.
    """

    def __init__(self, interval_s: float = _INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._views: dict[str, StoreView] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)

    def __enter__(self) -> StoreReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Not joined: it may be waiting for a store that does not answer, and holds nothing.
        self._stopped.set()

    def follow(self, views: Mapping[str, StoreView]) -> None:
        """Look at these from now on, and at no others."""
        with self._lock:
            self._views = dict(views)

    def _work(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            with self._lock:
                views = list(self._views.values())
            for view in views:
                if self._stopped.is_set():
                    return
                view.look()
            self._stopped.wait(max(0.0, self._interval_s - (time.monotonic() - began)))
