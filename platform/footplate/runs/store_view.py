"""What the store says of a run that is somewhere else."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from footplate.errors import FootplateError, StoreError
from footplate.runs.patience import within
from footplate.spec import Job
from footplate.spec import Store as StoreSection
from footplate.store import (
    AttemptResult,
    Notes,
    Progress,
    RunPaths,
    RunRecord,
    Store,
    read_record_if_there,
)

__all__ = [
    "StoreReader",
    "StoreSight",
    "StoreView",
    "job_of",
    "newest_attempt",
    "store_of",
    "store_section",
]

_INTERVAL_S = 1.5
_LONGEST_PAUSE_S = 60.0
# A store that does not answer holds up a thread for minutes, and the steps of no other run.
_THREADS = 4
_R = TypeVar("_R", bound=BaseModel)


def job_of(record: RunRecord) -> Job:
    """
    The job of a record.

    Raises:
        SpecError: If it was written by another version, whose specs this one does not know.
    """
    # Relative paths of it are another machine's; those of the store are URIs.
    return Job.from_dict(record.spec, folder=Path.cwd(), source=record.name)


def store_section(record: RunRecord) -> StoreSection:
    """
    Where the runs of a record's job are, whichever version wrote the rest of the job.

    Raises:
        StoreError: If the record does not say.
    """
    try:
        return StoreSection.model_validate(record.spec.get("store", {}))
    except ValidationError as error:
        raise StoreError(f"the store of {record.name} is none: {error}") from error


def store_of(record: RunRecord) -> Store:
    """
    The store of a record's run.

    Raises:
        StoreError: If the record does not say, or it can't be opened.
    """
    section = store_section(record)
    uri = section.uri if "://" in section.uri else str(Path(section.uri).absolute())
    # A folder that is not here is another machine's, and stays so.
    return Store(uri, endpoint=section.endpoint, region=section.region, create=False)


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
        trouble: Why not everything can be seen now, or None.
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
        self._seen_at: float | None = None
        self._failures = 0

    @property
    def sight(self) -> StoreSight:
        """What was seen last."""
        return self._sight

    @property
    def failures(self) -> int:
        """How often the store has not answered since it did."""
        return self._failures

    def is_seen_since(self, moment: float) -> bool:
        """Whether a look that has succeeded began after a moment of the monotonic clock."""
        return self._seen_at is not None and self._seen_at >= moment

    def look(self) -> StoreSight:
        """Look again; what can't be seen now stays as it was seen last."""
        began = time.monotonic()
        try:
            self._sight = self._read()
            self._seen_at, self._failures = began, 0
        except FootplateError as error:
            self._sight = replace(self._sight, trouble=error.message)
            self._failures += 1
        return self._sight

    def look_within(self, seconds: float) -> StoreSight:
        """Look again, but wait no longer than that for a store that does not answer."""
        within(seconds, self.look)
        return self._sight

    def open(self) -> Store:
        """
        The store of the run.

        Raises:
            StoreError: If it can't be opened.
        """
        if self._store is None:
            self._store = store_of(self.record)
        return self._store

    def _read(self) -> StoreSight:
        store, run = self.open(), self.record.paths
        attempt = newest_attempt(store, run, known=self._sight.attempt)
        cancelled = store.size(run.cancelled) is not None
        if not attempt:
            return StoreSight(cancelled=cancelled)
        paths, troubles = run.attempt(attempt), list[str]()
        last = self._sight if self._sight.attempt == attempt else StoreSight()
        return StoreSight(
            attempt=attempt,
            progress=_read_one(store, paths.progress, Progress, last.progress, troubles),
            notes=_read_one(store, paths.notes, Notes, last.notes, troubles),
            result=_read_one(store, paths.result, AttemptResult, last.result, troubles),
            cancelled=cancelled,
            trouble=next(iter(troubles), None),
        )


def _read_one(
    store: Store, path: str, kind: type[_R], last: _R | None, troubles: list[str]
) -> _R | None:
    """A record; if it can't be understood, the last that was, for the others may be whole."""
    try:
        return read_record_if_there(store, path, kind)
    except StoreError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise  # the store does not answer, and would not for the next record
        troubles.append(error.message)
        return last


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

    A store that does not answer must not keep anybody from seeing what the cluster says, or what
    other stores do. One that fails is asked less often.

    Args:
        interval_s: Between two looks at a run, at least.
    """

    def __init__(self, interval_s: float = _INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._followed: dict[str, _Followed] = {}
        self._queue: queue.SimpleQueue[_Followed | None] = queue.SimpleQueue()

    def __enter__(self) -> StoreReader:
        for _ in range(_THREADS):
            threading.Thread(target=self._work, name="store", daemon=True).start()
        return self

    def __exit__(self, *details: object) -> None:
        # Not joined: one may be waiting for a store that does not answer, and holds nothing.
        self._followed = {}
        for _ in range(_THREADS):
            self._queue.put(None)

    def follow(self, views: Mapping[str, StoreView]) -> None:
        """Look at those of these that are due, and at no others; to be called again and again."""
        self._followed = {
            uid: self._followed.get(uid) or _Followed(uid, view) for uid, view in views.items()
        }
        now = time.monotonic()
        for followed in self._followed.values():
            if not followed.is_waiting and followed.due <= now:
                followed.is_waiting = True
                self._queue.put(followed)

    def _work(self) -> None:
        while (followed := self._queue.get()) is not None:
            # While it waited, those who asked may have lost interest.
            if self._followed.get(followed.uid) is followed:
                began = time.monotonic()
                followed.view.look()
                pause_s = self._interval_s * 2.0 ** min(followed.view.failures, 10)
                followed.due = began + min(pause_s, max(_LONGEST_PAUSE_S, self._interval_s))
            followed.is_waiting = False
