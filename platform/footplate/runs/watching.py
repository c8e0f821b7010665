"""Following runs: one watch a kind, however many runs, and the store beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

from footplate.cluster import (
    POD,
    RAYCLUSTER,
    RAYJOB,
    WORKLOAD,
    Backoff,
    Change,
    Cluster,
    Informer,
    Selection,
)
from footplate.errors import (
    AccessDeniedError,
    ClusterError,
    ClusterUnreachableError,
    ObjectMissingError,
)
from footplate.runs.known import Known, Things, sorted_by_owner
from footplate.runs.looking import readable, reduced, selections, survey
from footplate.runs.observer import Observer, SilentObserver
from footplate.runs.reasons import MAY_BE_STUCK, Reasons
from footplate.runs.silence import Silence
from footplate.runs.state import Phase, RunState, Snapshot, state_of
from footplate.runs.store_reader import StoreReader

__all__ = ["Watching", "look", "states_now"]

Object = dict[str, Any]
_PAUSE_S = 1.0
_SHORT_PAUSE_S = 0.1
# How often is asked for what no watch follows, and from when on.
_LOOK_UP_S = 10.0
_PATIENCE_S = 5.0
# So many identities are asked for between two looks at what the watches bring.
_IDENTITIES = 20
# How long the end of a run is kept back for what its store says of it: an exit code, a reason.
_STORE_S = 10.0
# The same for many runs that had ended before anybody looked: they are shown without it.
_FIRST_S = 2.0
_IS_OR_WAS_UP = (*MAY_BE_STUCK, Phase.SUSPENDED)
# The next look is soon enough, and nobody waits for it.
_ONCE = Backoff(within_s=0.0)


def look(cluster: Cluster, rayjob: Object, *, now: float) -> RunState:
    """
    Where a run stands, without following it.

    Args:
        now: Seconds since the epoch, by the clock of this machine.
    """
    metadata = rayjob["metadata"]
    others = selections(metadata["name"], metadata["namespace"], metadata["uid"])[1:]
    found, unseen = survey(cluster, others)
    known, things = Known(rayjob=rayjob), sorted_by_owner(found)
    with suppress(ClusterError):  # what the cluster says of the run is known without it
        known.look_up_identity(cluster)
    if known.view is not None:
        known.view.look_within(_STORE_S)
    now += cluster.clock_offset_s
    snapshot = known.snapshot(things, unseen)
    known.look_up_reasons(Reasons(cluster), snapshot, state_of(snapshot, now=now).phase)
    return state_of(known.snapshot(things, unseen), now=now)


def states_now(
    rayjobs: Sequence[Object],
    things: Sequence[Object],
    *,
    now: float,
    unseen: frozenset[str] = frozenset(),
) -> list[RunState]:
    """
    Where many runs stand, by what the cluster says alone.

    Args:
        things: Workloads, RayClusters and pods of all of them.
        now: Seconds since the epoch, by the clock of the cluster.
        unseen: What of the things could not be looked at.
    """
    sorted_things = sorted_by_owner(things)
    return [
        state_of(Known(rayjob=rayjob).snapshot(sorted_things, unseen), now=now)
        for rayjob in rayjobs
    ]


class Watching:
    """
    Follows all runs that the selections show.

    A run that ends is shown as ended once its store has told how, or has not in time.

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
        self._chosen = list(chosen)
        self._uid = uid
        self._with_store = with_store
        self._silence = Silence(observer or SilentObserver())
        self._clock = clock
        self._unseen: frozenset[str] = frozenset()
        self._informer = Informer(cluster, self._chosen, reduce=reduced)
        self._reasons = Reasons(cluster.with_backoff(_ONCE))
        self._reader = StoreReader()
        self._may_read_identities = True
        self._identities_left = 0
        self._known: dict[str, Known] = {}

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
        watching._known[metadata["uid"]] = Known(rayjob=reduced({"kind": "RayJob", **rayjob}))
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
            AccessDeniedError: If RayJobs may not be read.
        """
        deadline = time.monotonic() + timeout_s if timeout_s is not None else math.inf
        has_begun = False
        while (left_s := deadline - time.monotonic()) > 0:
            pause_s = _SHORT_PAUSE_S if self._awaits_last_words() else _PAUSE_S
            self._take(min(pause_s, left_s))
            self._silence.look(self.trouble, "what is shown may be old")
            if not self._informer.is_synced:
                continue
            states = self._judge()
            # Who sees nothing but runs that have ended goes home: not without their last words.
            has_begun = has_begun or not self._awaits_last_words()
            if has_begun:
                yield states

    def _awaits_last_words(self) -> bool:
        return any(known.is_held for known in self._known.values())

    def _take(self, timeout_s: float) -> None:
        for change in self._changes(timeout_s):
            if change.kind == RAYJOB and change.object is not None:
                self._take_rayjob(change.object, is_deleted=change.action == "deleted")
        if self._uid is not None and self._informer.is_synced:
            self._notice_absence(self._uid)

    def _changes(self, timeout_s: float) -> list[Change]:
        try:
            return self._informer.changes(timeout_s)
        except (AccessDeniedError, ObjectMissingError) as error:
            self._do_without(error)
            return []

    def _do_without(self, error: ClusterError) -> None:
        """Begin again without what the user may not read, or the cluster does not know."""
        kept, unseen = readable(self._cluster, self._chosen)
        if len(kept) == len(self._chosen):
            raise error
        self._informer.__exit__(None, None, None)
        self._chosen, self._unseen = kept, self._unseen | unseen
        self._informer = Informer(self._cluster, kept, reduce=reduced)
        self._informer.__enter__()

    def _take_rayjob(self, rayjob: Object, *, is_deleted: bool) -> None:
        uid = rayjob["metadata"]["uid"]
        if self._uid not in (None, uid):
            return
        known = self._known.setdefault(uid, Known(rayjob=rayjob))
        known.rayjob = rayjob
        known.is_deleted = is_deleted

    def _notice_absence(self, uid: str) -> None:
        """A run that went before the watch began is never reported as deleted."""
        there = {thing["metadata"]["uid"] for thing in self._informer.objects(RAYJOB)}
        self._known[uid].is_deleted = uid not in there

    def _judge(self) -> dict[str, RunState]:
        now = self._clock() + self._cluster.clock_offset_s
        things = sorted_by_owner(
            thing for kind in (WORKLOAD, RAYCLUSTER, POD) for thing in self._informer.objects(kind)
        )
        self._identities_left = _IDENTITIES
        for known in self._known.values():
            self._judge_one(known, things, now)
        self._reader.follow(
            {
                uid: known.view
                for uid, known in self._known.items()
                if known.view is not None and self._is_worth_reading(known)
            }
        )
        return {uid: known.state for uid, known in self._known.items() if known.state is not None}

    def _judge_one(self, known: Known, things: Things, now: float) -> None:
        is_over = known.is_deleted and known.state is not None and known.state.is_terminal
        if is_over and (known.has_last_word or not self._with_store):
            return
        snapshot = known.snapshot(things, self._unseen)
        state = state_of(snapshot, now=now)
        known.take(state.phase, time.monotonic())
        if self._with_store and self._is_due(known, state.phase):
            self._look_up(known, state.phase, snapshot)
            state = state_of(known.snapshot(things, self._unseen), now=now)
            known.take(state.phase, time.monotonic())
        known.is_held = self._is_awaited(known)
        if not known.is_held:
            known.state = state

    def _is_due(self, known: Known, phase: Phase) -> bool:
        """Whether it is time to ask for what no watch brings."""
        if self.trouble is not None:
            return False
        if known.asked < (known.ended if known.ended is not None else 0.0):
            return True
        now = time.monotonic()
        is_slow = now - known.since > _PATIENCE_S and now - known.asked > _LOOK_UP_S
        is_stuck = phase is Phase.QUEUED or phase in MAY_BE_STUCK
        return is_slow and (is_stuck or self._needs_identity(known, phase))

    def _needs_identity(self, known: Known, phase: Phase) -> bool:
        """Of many, those that wait in a queue have nothing in their stores yet."""
        if known.is_deleted or known.has_identity or not self._may_read_identities:
            return False
        if phase.is_terminal:
            return known.has_identity is None
        return self._uid is not None or phase in (*_IS_OR_WAS_UP, Phase.INCOMPLETE)

    def _look_up(self, known: Known, phase: Phase, snapshot: Snapshot) -> None:
        if self._needs_identity(known, phase):
            if self._identities_left == 0:
                return  # another time
            self._identities_left -= 1
            self._look_up_identity(known)
        known.asked = time.monotonic()
        known.look_up_reasons(self._reasons, snapshot, phase)

    def _look_up_identity(self, known: Known) -> None:
        try:
            known.look_up_identity(self._cluster.with_backoff(_ONCE))
        except AccessDeniedError:
            self._may_read_identities = False
        except ClusterUnreachableError:
            self._identities_left = 0
        except ClusterError:
            return  # what is there is none; the cluster still says where the run stands

    def _is_worth_reading(self, known: Known) -> bool:
        if known.ended is not None:
            return not known.has_last_word
        return known.phase in _IS_OR_WAS_UP

    def _is_awaited(self, known: Known) -> bool:
        """Whether its store is still to tell of its end, and may do so in time."""
        if known.ended is None or known.has_last_word or not self._with_store:
            return False
        was_up = known.state is not None or self._uid is not None
        if known.state is not None and known.state.is_terminal:
            return False
        may_be_known = self._may_read_identities or known.view is not None
        patience_s = _STORE_S if was_up else _FIRST_S
        return may_be_known and time.monotonic() - known.ended < patience_s
