"""
What the drivers of running jobs ask for, as they write it to their stores.

A driver has no access to Kubernetes; its store is the one place where it can leave a word.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from footplate.cluster import CONFIG_MAP, RAYJOB, Cluster
from footplate.errors import ClusterError, FootplateError, StoreError
from footplate.render import IDENTITY_KEY, identity_name
from footplate.runs.guard.world import NewCluster, Object, Reference
from footplate.runs.store_view import job_of, newest_attempt
from footplate.store import (
    Progress,
    Request,
    RunPaths,
    RunRecord,
    Store,
    open_store,
    read_record_if_there,
)

__all__ = ["Lookout", "Wishes"]

_INTERVAL_S = 15.0
_LONGEST_PAUSE_S = 300.0
# A store that does not answer holds up a thread, not the guard.
_THREADS = 4


class Lookout:
    """
    Looks at the newest attempt of one run.

    One small request a look while the run makes progress, three otherwise.
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
        path = self._run.attempt(newest).request
        request = read_record_if_there(self._store, path, Request)
        return None if request is None else NewCluster(newest, request.reason)

    def _is_moving(self) -> bool:
        path = self._run.attempt(self._attempt).progress
        progress = read_record_if_there(self._store, path, Progress)
        before, self._step = self._step, progress.step if progress else 0
        return self._step > before


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
        interval_s: Between two looks at a run, in seconds.
    """

    def __init__(
        self, cluster: Cluster, say: Callable[[str], None], *, interval_s: float = _INTERVAL_S
    ) -> None:
        self._cluster = cluster
        self._say = say
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
            except FootplateError as error:
                self._failed(watched, error)
            pause_s = self._interval_s * 2**watched.failures
            watched.due = time.monotonic() + min(pause_s, max(_LONGEST_PAUSE_S, self._interval_s))
            watched.is_waiting = False

    def _failed(self, watched: _Watched, error: FootplateError) -> None:
        if not watched.failures:
            self._say(f"cannot see what {watched.rayjob} asks for: {error.message}")
        watched.failures = min(watched.failures + 1, 10)

    def _lookout(self, rayjob: Reference) -> Lookout:
        name, namespace = identity_name(rayjob.name), rayjob.namespace
        job = job_of(_record(self._cluster.get(CONFIG_MAP, name, namespace=namespace)))
        folder = job.path(job.store.uri)
        if "://" not in folder and not Path(folder).is_dir():
            raise StoreError(f"its store {folder} is a folder that is not here")
        # The object says whose run it is; its record could name another's.
        run = RunPaths(namespace=namespace, name=rayjob.name, uid=rayjob.uid)
        return Lookout(open_store(job), run)


def _record(identity: dict[str, Any]) -> RunRecord:
    try:
        return RunRecord.model_validate_json((identity.get("data") or {})[IDENTITY_KEY])
    except (KeyError, ValidationError) as error:
        name = identity["metadata"]["name"]
        raise ClusterError(f"ConfigMap {name} is no identity of a run: {error}") from error
