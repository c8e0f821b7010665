"""What is known of one run while it is followed, from the cluster and from its store."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from footplate.cluster import POD, RAYCLUSTER, WORKLOAD, Cluster
from footplate.runs.looking import owner_name, read_identity
from footplate.runs.marks import JOB_UID_LABEL
from footplate.runs.reasons import Reasons
from footplate.runs.state import Phase, RunState, Snapshot
from footplate.runs.store_view import StoreView

__all__ = ["Known", "Things", "sorted_by_owner"]

Object = dict[str, Any]
Things = defaultdict[tuple[str, str, str], list[Object]]
"""By kind, namespace, and the run they belong to: its UID for Workloads, its name for others."""


@dataclass(kw_only=True)
class Known:
    """
    What is known of one run besides what the watch says.

    Times are of the monotonic clock.

    Attributes:
        view: Of its store, once its identity is known.
        has_identity: None before anybody could look.
        asked: When it was last looked at more closely.
        phase: Of the last look.
        since: When the phase was first seen.
        ended: When it was first seen to have ended.
        state: What is shown.
        is_held: Whether its end is not shown yet, because its store is still to tell of it.
    """

    rayjob: Object
    is_deleted: bool = False
    view: StoreView | None = None
    has_identity: bool | None = None
    events: Sequence[Object] = ()
    nodes: Sequence[Object] = ()
    ahead: Sequence[str] | None = None
    asked: float = -math.inf
    phase: Phase | None = None
    since: float = 0.0
    ended: float | None = None
    state: RunState | None = None
    is_held: bool = False

    @property
    def uid(self) -> str:
        """Of the RayJob."""
        uid: str = self.rayjob["metadata"]["uid"]
        return uid

    @property
    def has_last_word(self) -> bool:
        """Whether all has been read that a run which has ended has left in its store."""
        if self.view is None:
            return self.has_identity is False or self.is_deleted
        return self.ended is not None and self.view.is_seen_since(self.ended)

    def take(self, phase: Phase, now: float) -> None:
        """Take note of where it stands."""
        if phase is not self.phase:
            self.phase, self.since = phase, now
        if not phase.is_terminal:
            self.ended = None
        elif self.ended is None:
            self.ended = now

    def look_up_identity(self, cluster: Cluster) -> None:
        """
        Ask who it is, and so where its store is.

        Raises:
            ClusterError: If it can't be told.
        """
        metadata = self.rayjob["metadata"]
        record = read_identity(cluster, metadata["name"], metadata["namespace"], self.uid)
        self.has_identity = record is not None
        if record is not None and self.view is None:
            self.view = StoreView(record)

    def look_up_reasons(self, reasons: Reasons, snapshot: Snapshot, phase: Phase) -> None:
        """Ask what explains why it stands where it stands."""
        self.ahead = reasons.ahead(snapshot, phase)
        self.events = reasons.events(snapshot, phase)
        self.nodes = reasons.nodes(snapshot, phase)

    def snapshot(self, things: Things, unseen: frozenset[str]) -> Snapshot:
        """
        All of it at this moment.

        Args:
            things: Workloads, RayClusters and pods, of this run and maybe of others.
            unseen: What of them could not be looked at.
        """
        name = self.rayjob["metadata"]["name"]
        namespace = self.rayjob["metadata"]["namespace"]
        sight = self.view.sight if self.view is not None else None
        has_store = sight is not None and sight.trouble is None
        return Snapshot(
            rayjob=self.rayjob,
            workload=next(iter(_owned(things[WORKLOAD.kind, namespace, self.uid], self.uid)), None),
            raycluster=_current(
                self.rayjob, _owned(things[RAYCLUSTER.kind, namespace, name], self.uid)
            ),
            pods=tuple(things[POD.kind, namespace, name]),
            events=tuple(self.events),
            nodes=tuple(self.nodes),
            ahead=self.ahead,
            progress=sight.progress if sight else None,
            notes=sight.notes if sight else None,
            result=sight.result if sight else None,
            attempt=sight.attempt or None if sight else None,
            cancelled=sight.cancelled if sight else False,
            has_identity=self.has_identity,
            is_deleted=self.is_deleted,
            unseen=unseen if has_store else unseen | {"store"},
        )


def sorted_by_owner(things: Iterable[Object]) -> Things:
    """Workloads, RayClusters and pods by the run that they belong to."""
    found: Things = defaultdict(list)
    for thing in things:
        if thing["kind"] == WORKLOAD.kind:
            owner = (thing["metadata"].get("labels") or {}).get(JOB_UID_LABEL)
        else:
            owner = owner_name(thing)
        if owner is not None:
            found[thing["kind"], thing["metadata"]["namespace"], owner].append(thing)
    return found


def _owned(things: Sequence[Object], uid: str) -> list[Object]:
    return [
        thing
        for thing in things
        if any(owner.get("uid") == uid for owner in thing["metadata"].get("ownerReferences") or [])
    ]


def _current(rayjob: Object, clusters: Sequence[Object]) -> Object | None:
    """The RayCluster that the RayJob names, or the newest of its own."""
    name = (rayjob.get("status") or {}).get("rayClusterName")
    named = [cluster for cluster in clusters if cluster["metadata"]["name"] == name]
    ordered = sorted(clusters, key=lambda each: each["metadata"].get("creationTimestamp") or "")
    return next(iter([*named, *reversed(ordered)]), None)
