"""Several selections at once, in the background."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

from footplate.cluster.client import Cluster
from footplate.cluster.kinds import Kind
from footplate.cluster.stop import Stop
from footplate.cluster.watch import Change, Reduce, Selection, follow
from footplate.errors import ClusterError

__all__ = ["Informer"]

# Until the threads have ended. One that waits for the first byte of an answer cannot be
# interrupted: it is left behind, and ends with its request or with the process.
_END_S = 1.0


class Informer:
    """
    Follows several selections, each in a thread of its own; a context manager.

    Only :meth:`changes` moves on what the others show, so all of it belongs together.

    Args:
        cluster: Where.
        selections: What.
        reduce: Gives what is kept of an object; by default all of it.
    """

    def __init__(
        self, cluster: Cluster, selections: Iterable[Selection], *, reduce: Reduce | None = None
    ) -> None:
        self._cluster = cluster
        self._reduce = reduce
        self._objects: dict[Selection, dict[str, dict[str, Any]]] = {
            selection: {} for selection in selections
        }
        self._unsynced = set(self._objects)
        self._troubles: dict[Selection, str] = {}
        self._queue: queue.SimpleQueue[tuple[Selection, Change | Exception]] = queue.SimpleQueue()
        self._stop = Stop()
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(selection,),
                name=f"watch {selection.kind.plural}",
                daemon=True,
            )
            for selection in self._objects
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        deadline = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def is_synced(self) -> bool:
        """Whether everything that was there at the beginning has been told."""
        return not self._unsynced

    @property
    def trouble(self) -> str | None:
        """Why the cluster cannot be watched just now, in one line; None if all is well."""
        return next(iter(list(self._troubles.values())), None)

    def changes(self, timeout: float | None) -> list[Change]:
        """
        What has happened since the last call.

        Args:
            timeout: Seconds to wait for the first change; None for as long as it takes.

        Returns:
            Changes in the order of each selection; none if nothing happened in time.

        Raises:
            FootplateError: What ended a selection, as a permission that is missing.
        """
        changes: list[Change] = []
        try:
            changes.append(self._take(timeout))
            while True:
                changes.append(self._take(0))
        except queue.Empty:
            return changes

    def objects(self, kind: Kind) -> list[dict[str, Any]]:
        """What is there of a kind, as of the last call of :meth:`changes`."""
        found: dict[str, dict[str, Any]] = {}
        for selection, objects in self._objects.items():
            if selection.kind == kind:
                found |= objects
        return list(found.values())

    def _take(self, timeout: float | None) -> Change:
        selection, change = self._queue.get(timeout=timeout)
        if isinstance(change, Exception):
            raise change
        objects = self._objects[selection]
        if change.object is None:
            self._unsynced.discard(selection)
        elif change.action == "deleted":
            objects.pop(change.uid, None)
        else:
            objects[change.uid] = change.object
        return change

    def _run(self, selection: Selection) -> None:
        changes = follow(
            self._cluster,
            selection,
            stop=self._stop,
            reduce=self._reduce,
            on_trouble=partial(self._note, selection),
        )
        try:
            for change in changes:
                self._queue.put((selection, change))
        except Exception as error:  # raised in the thread that asks for changes
            self._queue.put((selection, error))

    def _note(self, selection: Selection, error: ClusterError | None) -> None:
        if error is None:
            self._troubles.pop(selection, None)
        else:
            self._troubles[selection] = error.message.partition("\n")[0]
