"""
Following objects: what is there, and from then on every change.

A list gives the state of one moment; a watch goes on from it. What interrupts the watch (the
server ends it every few minutes, connections are lost, the server forgets old moments) does not
show, but for the time it takes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from footplate.cluster.backoff import Backoff
from footplate.cluster.client import Cluster
from footplate.cluster.kinds import Kind
from footplate.cluster.stop import Stop
from footplate.errors import (
    AccessDeniedError,
    ClusterError,
    ClusterUnreachableError,
    ObjectConflictError,
    ObjectMissingError,
    RejectedError,
)

__all__ = ["Action", "Change", "Reduce", "Selection", "follow"]

Reduce = Callable[[dict[str, Any]], dict[str, Any]]
"""Gives what is kept of an object; must not keep the object itself alive."""

Action = Literal["added", "modified", "deleted", "synced"]
"""What can happen to an object."""

_PATIENCE = Backoff(first_s=0.5, longest_s=30.0)
_NO_REPEAT = Backoff(within_s=0.0)
# A watch that ends sooner and without a word is as good as a refused one.
_SHORTEST_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """
    Which objects.

    Args:
        kind: Their kind.
        namespace: Theirs; None for that of the cluster object, ``ALL_NAMESPACES`` for all.
        labels: A label selector, as ``app=a,tier!=b``.
        fields: A field selector, as ``metadata.name=digits``.
    """

    kind: Kind
    namespace: str | None = None
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """
    One thing that happened.

    Args:
        action: What; ``synced`` says that everything that is there has been told.
        kind: To what kind of object.
        object: The object, reduced: as it now is, or as it was when it was deleted. None for
            ``synced``.
        uid: Of the object.
    """

    action: Action
    kind: Kind
    object: dict[str, Any] | None = None
    uid: str = ""


def follow(
    cluster: Cluster,
    selection: Selection,
    *,
    stop: Stop,
    reduce: Reduce | None = None,
    on_trouble: Callable[[ClusterError | None], None] | None = None,
    backoff: Backoff = _PATIENCE,
    timeout_s: float | None = None,
) -> Iterator[Change]:
    """
    Tell what is there and then what changes, until the stop is set.

    An object that has vanished while nobody could watch is told as deleted, in the form last
    known; one that is as it was is not told again. Of two objects that follow each other under
    one name the end of the first comes first.

    Args:
        stop: Ends it within a second, even while it waits for the server.
        reduce: Gives what is kept of an object, and told; by default all of it.
        on_trouble: Called with the error when the cluster cannot be watched, each time that it
            is tried in vain, and with None when it can be again.
        backoff: Between tries in vain.
        timeout_s: How long one watch lasts; by default a few minutes, never the same.

    Raises:
        AccessDeniedError: If the objects may not be listed. Only at the beginning, as the
            next two: later it is trouble, which may pass (a server that starts refuses
            everybody for a moment, a person logs in again).
        ObjectMissingError: If the cluster does not know the kind.
        RejectedError: If the selector is none.
    """
    follower = _Follower(cluster, selection, stop, reduce, on_trouble, timeout_s)
    while not stop.is_set():
        try:
            yield from follower.step()
        except ClusterError as error:
            if follower.is_refused(error):
                raise
            stop.wait(backoff.wait_s(follower.failed(error)))


class _Follower:
    """What is known of a selection, and where to go on."""

    def __init__(
        self,
        cluster: Cluster,
        selection: Selection,
        stop: Stop,
        reduce: Reduce | None,
        on_trouble: Callable[[ClusterError | None], None] | None,
        timeout_s: float | None,
    ) -> None:
        self._cluster = cluster.with_backoff(_NO_REPEAT)
        self._selection = selection
        self._stop = stop
        self._reduce = reduce or _whole
        self._on_trouble = on_trouble
        self._timeout_s = timeout_s
        self._known: dict[str, _Known] = {}
        self._resource_version: str | None = None
        self._has_begun = False
        self._failures = 0

    def is_refused(self, error: ClusterError) -> bool:
        """Whether it makes no sense to go on trying."""
        final = (AccessDeniedError, ObjectMissingError, RejectedError)
        return not self._has_begun and isinstance(error, final)

    def failed(self, error: ClusterError) -> int:
        """Take note of a failure; how many there were since something worked."""
        self._failures += 1
        is_outdated = isinstance(error, ObjectConflictError)
        if is_outdated:
            self._resource_version = None
        # Once in a while the server forgets the moment, and listing again makes up for it.
        if self._on_trouble is not None and not (is_outdated and self._failures == 1):
            self._on_trouble(error)
        return self._failures

    def step(self) -> Iterator[Change]:
        """List if there is nothing to go on from; else watch once."""
        if self._resource_version is None:
            yield from self._list()
        else:
            yield from self._watch(self._resource_version)

    def _list(self) -> Iterator[Change]:
        fresh: dict[str, _Known] = {}
        resource_version = ""
        pages = self._cluster.pages(self._selection.kind, **self._selectors())
        for objects, moment in pages:
            resource_version = moment
            fresh.update(self._keep(obj) for obj in objects)
            if self._stop.is_set():
                return
        known, self._known = self._known, fresh
        self._resource_version = resource_version
        yield from self._differences(known, fresh)
        yield Change(action="synced", kind=self._selection.kind)

    def _differences(self, known: dict[str, _Known], fresh: dict[str, _Known]) -> Iterator[Change]:
        for uid in known.keys() - fresh.keys():
            yield self._change("deleted", uid, known[uid])
        for uid, now in fresh.items():
            before = known.get(uid)
            if before is None:
                yield self._change("added", uid, now)
            elif before.resource_version != now.resource_version:
                yield self._change("modified", uid, now)

    def _watch(self, resource_version: str) -> Iterator[Change]:
        timeout_s = self._timeout_s or random.uniform(120, 240)  # noqa: S311 - no secret
        events = self._cluster.stream(
            self._selection.kind,
            resource_version=resource_version,
            timeout_s=timeout_s,
            stop=self._stop,
            **self._selectors(),
        )
        self._has_begun = True
        if self._on_trouble is not None:
            self._on_trouble(None)
        started, is_empty = time.monotonic(), True
        for event in events:
            is_empty = False
            yield from self._apply(event)
        if is_empty and not self._stop.is_set() and time.monotonic() - started < _SHORTEST_S:
            raise ClusterUnreachableError(
                f"the API server {self._cluster.server} ends every watch at once",
                "Is there a proxy that does not let watches through?",
            )
        self._failures = 0

    def _apply(self, event: dict[str, Any]) -> Iterator[Change]:
        action, obj = event["type"], event["object"]
        if action == "ERROR":
            _raise(obj)
        self._resource_version = obj["metadata"]["resourceVersion"]
        self._failures = 0
        if action == "BOOKMARK":
            return
        uid, now = self._keep(obj)
        before = self._known.pop(uid, None)
        if action == "DELETED":
            yield self._change("deleted", uid, now)
            return
        self._known[uid] = now
        yield self._change("added" if before is None else "modified", uid, now)

    def _keep(self, obj: dict[str, Any]) -> tuple[str, _Known]:
        metadata = obj["metadata"]
        uid, resource_version = metadata["uid"], metadata["resourceVersion"]
        return uid, _Known(resource_version=resource_version, object=self._reduce(obj))

    def _change(self, action: Action, uid: str, known: _Known) -> Change:
        return Change(action=action, kind=self._selection.kind, object=known.object, uid=uid)

    def _selectors(self) -> dict[str, Any]:
        selection = self._selection
        return {
            "namespace": selection.namespace,
            "labels": selection.labels,
            "fields": selection.fields,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """An object as it was last seen."""

    resource_version: str
    object: dict[str, Any]


def _whole(obj: dict[str, Any]) -> dict[str, Any]:
    return obj


def _raise(status: dict[str, Any]) -> None:
    """An error in the middle of a watch."""
    message = status.get("message", "")
    if status.get("code") == 410:
        raise ObjectConflictError(f"the watch cannot go on: {message}")
    raise ClusterUnreachableError(f"the watch broke off: {message}")
