"""Following runs: one watch a kind, however many runs, and the store beside it."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from footplate.cluster import POD, RAYCLUSTER, RAYJOB, WORKLOAD, Cluster, Informer, Selection
from footplate.errors import ClusterError
from footplate.runs.looking import (
    ahead_in_queue,
    available,
    events_of,
    nodes_of,
    owner_name,
    read_identity,
    reduced,
    related,
    selections,
)
from footplate.runs.observer import Observer, SilentObserver
from footplate.runs.state import Phase, RunState, Snapshot, state_of
from footplate.runs.store_view import StoreReader, StoreView

__all__ = ["Watching", "look", "states_now"]

Object = dict[str, Any]
# By kind, namespace, and the run they belong to: its UID for Workloads, its name for others.
_Sorted = dict[tuple[str, str, str], list[Object]]
_PAUSE_S = 1.0
# How often events and nodes are asked for, which no watch follows, and from when on.
_LOOK_UP_S = 10.0
_PATIENCE_S = 5.0
_STORE_S = 10.0
_MAY_BE_STUCK = (Phase.ADMITTED, Phase.STARTING, Phase.TRAINING, Phase.SUSPENDING)
_IS_OR_WAS_UP = (*_MAY_BE_STUCK, Phase.SUSPENDED)


def look(cluster: Cluster, rayjob: Object, *, now: float) -> RunState:
    """
    Where a run stands, without following it.

    Args:
        now: Seconds since the epoch.
    """
    known = _Known(rayjob=rayjob)
    known.look_up_identity(cluster)
    if known.view is not None:
        known.view.look_within(_STORE_S)
    things = _sorted_by_owner(related(cluster, rayjob))
    snapshot = known.snapshot(things)
    state = state_of(snapshot, now=now)
    known.look_up_reasons(cluster, snapshot, state.phase)
    return state_of(known.snapshot(things), now=now)


def states_now(
    rayjobs: Sequence[Object], things: Sequence[Object], *, now: float
) -> list[RunState]:
    """
    Where many runs stand, by what the cluster says alone.

    Args:
        things: Workloads, RayClusters and pods of all of them.
        now: Seconds since the epoch.
    """
    sorted_things = _sorted_by_owner(things)
    return [state_of(_Known(rayjob=rayjob).snapshot(sorted_things), now=now) for rayjob in rayjobs]


@dataclass(kw_only=True)
class _Known:
    """
    What is known of one run besides what the watch says.

    Attributes:
        view: Of its store, once its identity is known.
        has_identity: None before anybody looked.
    """

    rayjob: Object
    is_deleted: bool = False
    view: StoreView | None = None
    has_identity: bool | None = None
    events: Sequence[Object] = ()
    nodes: Sequence[Object] = ()
    ahead: Sequence[str] | None = None
    asked: float = 0.0
    state: RunState | None = None
    since: float = field(default=0.0)

    @property
    def uid(self) -> str:
        uid: str = self.rayjob["metadata"]["uid"]
        return uid

    def look_up_identity(self, cluster: Cluster) -> None:
        metadata = self.rayjob["metadata"]
        record = read_identity(cluster, metadata["name"], metadata["namespace"], self.uid)
        self.has_identity = record is not None
        if record is not None and self.view is None:
            self.view = StoreView(record)

    def look_up_reasons(self, cluster: Cluster, snapshot: Snapshot, phase: Phase) -> None:
        """What explains why it stands where it stands."""
        if phase is Phase.QUEUED and snapshot.workload is not None:
            self.ahead = ahead_in_queue(cluster, snapshot.workload)
        if phase in _MAY_BE_STUCK:
            self._look_up_troubles(cluster, snapshot)

    def _look_up_troubles(self, cluster: Cluster, snapshot: Snapshot) -> None:
        pods = [dict(pod) for pod in snapshot.pods]
        self.events = events_of(cluster, [pod for pod in pods if not _is_ready(pod)])
        self.nodes = nodes_of(cluster, pods)

    def snapshot(self, things: _Sorted) -> Snapshot:
        name = self.rayjob["metadata"]["name"]
        namespace = self.rayjob["metadata"]["namespace"]
        sight = self.view.sight if self.view is not None else None
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
            unseen=frozenset(() if sight is not None and sight.trouble is None else ("store",)),
        )


class Watching:
    """
    Follows all runs that the selections show.

    Args:
        chosen: As :func:`~footplate.runs.looking.selections` makes them.
        uid: Follow this run alone: one of the same name that comes later is another.
        with_store: Whether the stores of the runs are read, too.
        observer: Is told when the cluster goes away, and when it is back.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        cluster: Cluster,
        chosen: Sequence[Selection],
        *,
        uid: str | None = None,
        with_store: bool = True,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._uid = uid
        self._with_store = with_store
        self._observer = observer or SilentObserver()
        self._clock = clock
        self._answered = clock()
        self._is_away = False
        self._informer = Informer(cluster, available(cluster, chosen), reduce=reduced)
        self._reader = StoreReader()
        self._known: dict[str, _Known] = {}

    @classmethod
    def one(cls, cluster: Cluster, rayjob: Object, *, observer: Observer | None = None) -> Self:
        """Follow one run."""
        metadata = rayjob["metadata"]
        watching = cls(
            cluster,
            selections(metadata["name"], metadata["namespace"], metadata["uid"]),
            uid=metadata["uid"],
            observer=observer,
        )
        # Known from the start: it may be gone before the watch begins.
        watching._known[metadata["uid"]] = _Known(rayjob=reduced({"kind": "RayJob", **rayjob}))
        return watching

    def __enter__(self) -> Self:
        self._informer.__enter__()
        self._reader.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._reader.__exit__(*details)
        self._informer.__exit__(*details)

    @property
    def trouble(self) -> str | None:
        """Why nothing new comes from the cluster now, or None."""
        return self._informer.trouble

    def states(self, timeout_s: float | None = None) -> Iterator[dict[str, RunState]]:
        """
        UID of each run to where it stands: again after each change, and about once a second.

        Args:
            timeout_s: How long; left out: for ever.

        Raises:
            AccessDeniedError: If one of the kinds may not be read.
        """
        deadline = time.monotonic() + timeout_s if timeout_s is not None else math.inf
        while time.monotonic() < deadline:
            self._take(max(0.0, min(_PAUSE_S, deadline - time.monotonic())))
            self._tell_trouble()
            if self._informer.is_synced:
                yield self._judge()

    def _tell_trouble(self) -> None:
        """Once when the cluster has been away for a while, and once when it is back."""
        now, trouble = self._clock(), self.trouble
        if trouble is None:
            if self._is_away:
                self._observer.note("the cluster answers again")
            self._answered, self._is_away = now, False
        elif not self._is_away and now - self._answered > _PATIENCE_S:
            self._observer.note(f"{trouble}; what is shown may be old")
            self._is_away = True

    def _take(self, timeout_s: float) -> None:
        for change in self._informer.changes(timeout_s):
            if change.kind == RAYJOB and change.object is not None:
                self._take_rayjob(change.object, is_deleted=change.action == "deleted")
        if self._uid is not None and self._informer.is_synced:
            self._notice_absence(self._uid)

    def _take_rayjob(self, rayjob: Object, *, is_deleted: bool) -> None:
        uid = rayjob["metadata"]["uid"]
        if self._uid not in (None, uid):
            return
        known = self._known.setdefault(uid, _Known(rayjob=rayjob))
        known.rayjob = rayjob
        known.is_deleted = is_deleted

    def _notice_absence(self, uid: str) -> None:
        """A run that went before the watch began is never reported as deleted."""
        there = {thing["metadata"]["uid"] for thing in self._informer.objects(RAYJOB)}
        self._known[uid].is_deleted = uid not in there

    def _judge(self) -> dict[str, RunState]:
        now = self._clock()
        things = _sorted_by_owner(
            thing for kind in (WORKLOAD, RAYCLUSTER, POD) for thing in self._informer.objects(kind)
        )
        for known in self._known.values():
            self._judge_one(known, things, now)
        self._reader.follow(
            {
                uid: known.view
                for uid, known in self._known.items()
                if known.view is not None
                and known.state is not None
                and known.state.phase in _IS_OR_WAS_UP
            }
        )
        return {uid: known.state for uid, known in self._known.items() if known.state is not None}

    def _judge_one(self, known: _Known, things: _Sorted, now: float) -> None:
        if known.state is not None and known.state.is_terminal and known.is_deleted:
            return
        before = known.state.phase if known.state is not None else None
        snapshot = known.snapshot(things)
        state = state_of(snapshot, now=now)
        if state.phase != before:
            known.since = now
        if self._with_store and self._is_due(known, state, now):
            known.asked = now
            self._look_up(known, state, snapshot)
            state = state_of(known.snapshot(things), now=now)
        known.state = state

    def _is_due(self, known: _Known, state: RunState, now: float) -> bool:
        if known.state is None or state.is_terminal != known.state.is_terminal:
            return True
        is_slow = now - known.since > _PATIENCE_S and now - known.asked > _LOOK_UP_S
        waits = state.phase is Phase.QUEUED or state.phase in _MAY_BE_STUCK
        return is_slow and (waits or not known.has_identity)

    def _look_up(self, known: _Known, state: RunState, snapshot: Snapshot) -> None:
        """What no watch brings: the identity, warnings, nodes, and the last word in the store."""
        try:
            if not known.has_identity and not known.is_deleted:
                known.look_up_identity(self._cluster)
            known.look_up_reasons(self._cluster, snapshot, state.phase)
        except ClusterError:
            return  # the watch says that the cluster is away
        if state.is_terminal and known.view is not None:
            known.view.look_within(_STORE_S)


def _sorted_by_owner(things: Iterable[Object]) -> _Sorted:
    found: defaultdict[tuple[str, str, str], list[Object]] = defaultdict(list)
    for thing in things:
        if thing["kind"] == WORKLOAD.kind:
            owner = (thing["metadata"].get("labels") or {}).get("kueue.x-k8s.io/job-uid")
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


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
