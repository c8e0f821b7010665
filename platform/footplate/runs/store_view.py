"""What the store says of a run that is somewhere else."""

from __future__ import annotations

import json
import time
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
    "StoreSight",
    "StoreView",
    "job_of",
    "newest_attempt",
    "store_of",
    "store_section",
]

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
    def place(self) -> str:
        """What tells its store from those of other runs, whether it can be opened or not."""
        return json.dumps(self.record.spec.get("store"), sort_keys=True)

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
