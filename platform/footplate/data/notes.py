"""What is known of files while their manifest is not written yet, kept beside them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pydantic import BaseModel, ConfigDict, ValidationError

from footplate.data.describe import Described
from footplate.errors import ObjectNotFoundError, StoreError
from footplate.store import ObjectInfo, Store

__all__ = ["Notes"]

_FOLDER = ".footplate-create"
_INTERVAL_S = 5.0


class _Note(BaseModel):
    """What was found out about a file, and which state of the file that was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    etag: str
    described: Described


class _NotePage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    notes: tuple[_Note, ...]


class Notes:
    """
    What is known of files, kept in the folder until the manifest is written.

    A page is written every few seconds and never changed, so that an end at any moment costs a
    few seconds of work and nothing else.

    Args:
        objects: All that is in the folder.

    Attributes:
        used: Files that need not be read again.
    """

    def __init__(self, store: Store, objects: Sequence[ObjectInfo]) -> None:
        self.used = 0
        self._store = store
        self._unwritten: list[_Note] = []
        self._written_at = time.monotonic()
        self._known: dict[tuple[str, int, str], Described] = {}
        for info in objects:
            if info.path.startswith(f"{_FOLDER}/"):
                self._load(info.path)

    def find(self, info: ObjectInfo) -> Described | None:
        """What is known of a file in this very state."""
        known = self._known.get((info.path, info.size, info.etag)) if info.etag else None
        self.used += known is not None
        return known

    def add(self, info: ObjectInfo, described: Described) -> None:
        """Remember what was read of a file."""
        self._unwritten.append(_Note(etag=info.etag, described=described))
        if time.monotonic() - self._written_at >= _INTERVAL_S:
            self._write()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Write down what was read even if this ends in an error."""
        try:
            yield
        except BaseException:
            with suppress(StoreError):  # what is told is what went wrong first
                self._write()
            raise

    def remove(self) -> None:
        """Leave nothing behind."""
        self._store.delete_folder(_FOLDER)

    def _write(self) -> None:
        self._written_at = time.monotonic()
        if not self._unwritten:
            return
        content = _NotePage(notes=tuple(self._unwritten)).model_dump_json().encode()
        self._store.put(f"{_FOLDER}/{hashlib.sha256(content).hexdigest()[:16]}.json", content)
        self._unwritten = []

    def _load(self, path: str) -> None:
        try:
            page = _NotePage.model_validate_json(self._store.get(path))
        except (ValidationError, ObjectNotFoundError):
            return  # of another version, or just removed by who finished
        for note in page.notes:
            file = note.described.file
            self._known[file.path, file.size, note.etag] = note.described
