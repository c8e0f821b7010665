"""
Removing checkpoints, so that none goes that somebody has pinned.

The commit marker is taken away first: a removal cut short leaves an uncommitted folder, which
nobody reads and the next one collects. Only then are the pins read. Whoever pins puts the pin
there first and looks for the marker then; so one of the two sees the other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePosixPath

from footplate.checkpoints.manifest import COMMITTED, MANIFEST
from footplate.checkpoints.pins import Pin
from footplate.errors import ObjectNotFoundError
from footplate.store import CheckpointName, ObjectInfo, RunPaths, Store, read_record_if_there

__all__ = ["Remover", "discard"]


class Remover:
    """
    Removes checkpoints of a run.

    Pins are listed before each removal, and each of them is read once.
    """

    def __init__(self, store: Store, run: RunPaths) -> None:
        self._store = store
        self._run = run
        self._read: dict[tuple[str, str, float], CheckpointName | None] = {}

    def is_pinned(self, name: CheckpointName) -> bool:
        """
        Whether a pin holds a checkpoint now.

        Raises:
            StoreError: If a pin can't be read: nothing may be removed then.
        """
        # All of them are looked at, for one that can't be read may be on any checkpoint.
        held = {self._held(info) for info in self._store.objects(self._run.pins)}
        return name in held

    def remove(self, name: CheckpointName, *, check: Callable[[], None] = lambda: None) -> bool:
        """
        Remove a checkpoint, unless it is pinned; say whether it is gone.

        Args:
            check: Raises if it is not to be removed after all; called again once the marker is
                away, since that may have taken long.

        Raises:
            StoreError: If the store fails.
        """
        check()
        if self.is_pinned(name):
            return False
        folder = self._run.checkpoint(name)
        marker = f"{folder}/{COMMITTED}"
        content = None
        with suppress(ObjectNotFoundError):
            content = self._store.get(marker)
        stays = True
        try:
            self._store.delete(marker)
            check()
            stays = self.is_pinned(name)
        finally:
            # Whoever has fenced this attempt may have taken it for an orphan meanwhile.
            if stays and content is not None and self._holds(folder):
                self._store.put(marker, content)
                self._store.sync(marker)
        if not stays:
            self._store.delete_folder(folder)
        return not stays

    def _holds(self, folder: str) -> bool:
        return self._store.size(f"{folder}/{MANIFEST}") is not None

    def _held(self, info: ObjectInfo) -> CheckpointName | None:
        # A pin may be taken away and another one put under its name.
        key = (info.path, info.etag, info.modified)
        if key not in self._read:
            pin = read_record_if_there(
                self._store, self._run.pin(PurePosixPath(info.path).stem), Pin
            )
            self._read[key] = CheckpointName.parse(pin.checkpoint) if pin else None
        return self._read[key]


def discard(store: Store, run: RunPaths, name: CheckpointName) -> None:
    """Remove a checkpoint whatever holds it, the marker first."""
    folder = run.checkpoint(name)
    store.delete(f"{folder}/{COMMITTED}")
    store.delete_folder(folder)
