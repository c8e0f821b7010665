"""
What the drivers of running jobs ask for, as they write it to their stores.

A driver has no access to Kubernetes; its store is the one place where it can leave a word.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from pydantic import BaseModel

from footplate.cluster import RAYJOB, Cluster
from footplate.errors import FootplateError, StoreError
from footplate.runs.guard.stores import check_allowed
from footplate.runs.guard.world import NewCluster, Object, Reference
from footplate.runs.looking import read_identity
from footplate.runs.store_view import newest_attempt, store_of, store_section
from footplate.runs.text import one_line
from footplate.store import (
    Progress,
    Request,
    RunPaths,
    Store,
    read_record_if_there,
)

__all__ = ["Lookout", "Wishes"]

_INTERVAL_S = 15.0
_LONGEST_PAUSE_S = 300.0
# A store that does not answer holds up a thread, not the guard.
_THREADS = 4
# Who can write to a store must not be able to fill the memory of the guard.
_LARGEST = 2**20

R = TypeVar("R", bound=BaseModel)


class Lookout:
    """
    Looks at the newest attempt of one run.

    Two small requests a look while the run makes progress, four otherwise.
    """

    def __init__(self, store: Store, run: RunPaths) -> None:
        self._store = store
        self._run = run
        self._attempt = 0
        self._step = 0

    def look(self) -> NewCluster | None:
        """
        What the newest attempt asks for, or None.

        Raises:
            StoreError: If the store does not say.
        """
        if self._attempt and self._is_moving():
            return None
        newest = newest_attempt(self._store, self._run, known=self._attempt)
        if newest != self._attempt:
            self._attempt, self._step = newest, 0
        if not newest:
            return None
        request = self._read(self._run.attempt(newest).request, Request)
        return None if request is None else NewCluster(newest, one_line(request.reason))

    def _is_moving(self) -> bool:
        progress = self._read(self._run.attempt(self._attempt).progress, Progress)
        before, self._step = self._step, progress.step if progress else 0
        return self._step > before

    def _read(self, path: str, kind: type[R]) -> R | None:
        size = self._store.size(path)
        if size is None:
            return None
        if size > _LARGEST:
            raise StoreError(f"{self._store.locate(path)} is no {kind.__name__}: {size} bytes")
        return read_record_if_there(self._store, path, kind)


class _Watched:
    """A running job, and when to look at it again."""

    def __init__(self, rayjob: Reference) -> None:
        self.rayjob = rayjob
        self.lookout: Lookout | None = None
        self.wish: NewCluster | None = None
        self.due = 0.0
        self.failures = 0
        self.is_waiting = False  # in the queue, or being looked at


class Wishes:
    """
    Looks at many runs, again and again, in threads of its own.

    Args:
        say: Is told why something can't be seen, once for each run.
        endpoints: Those that specs may name, and nowhere else are credentials sent.
        interval_s: Between two looks at a run, in seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        say: Callable[[str], None],
        *,
        endpoints: Collection[str] = (),
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self._cluster = cluster
        self._say = say
        self._endpoints = endpoints
        self._interval_s = interval_s
        self._watched: dict[str, _Watched] = {}
        self._queue: queue.SimpleQueue[_Watched | None] = queue.SimpleQueue()

    def __enter__(self) -> Wishes:
        for _ in range(_THREADS):
            threading.Thread(target=self._work, name="wishes", daemon=True).start()
        return self

    def __exit__(self, *details: object) -> None:
        # Not joined: one may be waiting for a store that does not answer, and holds nothing.
        self._watched = {}
        for _ in range(_THREADS):
            self._queue.put(None)

    def follow(self, rayjobs: Iterable[Object]) -> None:
        """Look at these from now on, each when it is due, and at no others."""
        wanted = (Reference.to(RAYJOB, rayjob) for rayjob in rayjobs)
        self._watched = {one.uid: self._watched.get(one.uid) or _Watched(one) for one in wanted}
        now = time.monotonic()
        for watched in self._watched.values():
            if not watched.is_waiting and watched.due <= now:
                watched.is_waiting = True
                self._queue.put(watched)

    def found(self) -> dict[str, NewCluster]:
        """What is asked for, by the UID of the RayJob."""
        return {uid: one.wish for uid, one in self._watched.items() if one.wish is not None}

    def _work(self) -> None:
        while (watched := self._queue.get()) is not None:
            if watched.rayjob.uid not in self._watched:
                continue  # it has ended meanwhile
            try:
                watched.lookout = watched.lookout or self._lookout(watched.rayjob)
                watched.wish = watched.lookout.look()
                watched.failures = 0
            except Exception as error:  # what one run says must not end the looks at all others
                self._failed(watched, error)
            finally:
                watched.due = time.monotonic() + self._pause_s(watched.failures)
                watched.is_waiting = False

    def _pause_s(self, failures: int) -> float:
        return min(self._interval_s * 2.0**failures, max(_LONGEST_PAUSE_S, self._interval_s))

    def _failed(self, watched: _Watched, error: Exception) -> None:
        if not watched.failures:
            why = error.message if isinstance(error, FootplateError) else repr(error)
            self._say(f"cannot see what {watched.rayjob} asks for: {one_line(why)}")
        watched.failures = min(watched.failures + 1, 10)

    def _lookout(self, rayjob: Reference) -> Lookout:
        name, namespace, uid = rayjob.name, rayjob.namespace, rayjob.uid
        record = read_identity(self._cluster, name, namespace, uid)
        if record is None:
            raise StoreError("it has no identity, which would say where its store is")
        check_allowed(store_section(record), self._endpoints)
        # The object says whose run it is; its record could name another's.
        run = RunPaths(namespace=namespace, name=name, uid=uid)
        return Lookout(store_of(record), run)
