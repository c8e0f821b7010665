"""A run in a cluster, as scripts hold it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from footplate.cluster import RAYJOB, WORKLOAD, Cluster, connect
from footplate.errors import (
    ClusterError,
    ClusterUnreachableError,
    FootplateError,
    RunNotFoundError,
    StoreError,
    WaitTimeoutError,
)
from footplate.runs.deployment import Deployment
from footplate.runs.finding import find_rayjob
from footplate.runs.history import find_run_at
from footplate.runs.logs import LogReader
from footplate.runs.looking import read_identity
from footplate.runs.marks import (
    CANCELLED,
    JOB_UID_LABEL,
    QUEUE_LABEL,
    SUSPENDED,
    mark_of,
    signature,
)
from footplate.runs.observer import Observer, SilentObserver
from footplate.runs.patience import within
from footplate.runs.removal import remove
from footplate.runs.space import RunSpace, run_space
from footplate.runs.state import RunState
from footplate.runs.store_view import StoreSight, StoreView
from footplate.runs.unstored_log import unstored_lines
from footplate.runs.watching import Watching, look

__all__ = ["Run", "find_run"]

_PAUSE_S = 0.5
_STORE_S = 10.0
# How long a cancelled run may take to save and to tell MLflow.
_GRACE_S = 90.0


def find_run(
    name: str,
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> Run:
    """
    The run of a name in a cluster; the arguments are those of :func:`footplate.submit`.

    Raises:
        RunNotFoundError: If there is none.
        ClusterError: If the cluster fails or does not allow it.
    """
    cluster = connect(kubeconfig=kubeconfig, context=context, namespace=namespace)
    rayjob = find_rayjob(cluster, name, cluster.namespace)
    return Run(cluster, name, namespace=cluster.namespace, uid=rayjob["metadata"]["uid"])


class Run:
    """
    What a Job UID names.

    It does not hold the run: whatever happens to this object, the run goes on.
    """

    def __init__(self, cluster: Cluster, name: str, *, namespace: str, uid: str) -> None:
        self.name = name
        self.namespace = namespace
        self.uid = uid
        self._cluster = cluster

    def __repr__(self) -> str:
        return f"Run({self.namespace}/{self.name}, {self.uid})"

    def status(self) -> RunState:
        """
        Where it stands.

        Raises:
            RunNotFoundError: If it is not in the cluster any more.
        """
        return look(self._cluster, self._rayjob(), now=time.time())

    def space(self, timeout_s: float = _STORE_S) -> RunSpace | None:
        """
        What it takes in its store.

        Args:
            timeout_s: Wait no longer for a store that does not answer.

        Returns:
            None if the store can't be read from here.

        Raises:
            RunNotFoundError: If it is not in the cluster any more.
        """
        view, found = self._view(), list[RunSpace]()

        def look() -> None:
            if (past := find_run_at(view.open(), view.record.paths)) is not None:
                found.append(run_space(view.open(), past))

        try:
            within(timeout_s, look)
        except StoreError:
            return None
        return found[0] if found else None

    def states(
        self, timeout_s: float | None = None, *, observer: Observer | None = None
    ) -> Iterator[RunState]:
        """
        Where it stands: again after each change and once a second, until it has ended.

        Args:
            timeout_s: No longer than that; left out: as long as it takes.
            observer: Is told when the cluster goes away, and when it is back.

        Raises:
            RunNotFoundError: If it is not in the cluster any more.
        """
        with Watching.one(self._cluster, self._rayjob(), observer=observer) as watching:
            for states in watching.states(timeout_s):
                yield states[self.uid]
                if states[self.uid].is_terminal:
                    return

    def wait(
        self,
        timeout_s: float | None = None,
        *,
        on_state: Callable[[RunState], None] | None = None,
        observer: Observer | None = None,
    ) -> RunState:
        """
        Wait for the end.

        Args:
            timeout_s: Left out: as long as it takes.
            on_state: Is told where it stands, about once a second.
            observer: Is told when the cluster goes away, and when it is back.

        Returns:
            How it ended; its ``exit_code`` is what a script can branch on.

        Raises:
            WaitTimeoutError: If it goes on for longer; the run is not touched.
            RunNotFoundError: If it is not in the cluster any more.
        """
        state: RunState | None = None
        for state in self.states(timeout_s, observer=observer):
            if on_state is not None:
                on_state(state)
        if state is not None and state.is_terminal:
            return state
        raise WaitTimeoutError(
            f"{self.name} has not ended within {timeout_s:g} s: "
            + (state.reason if state else "the cluster has not said where it stands"),
            f"It goes on. Watch it: footplate watch {self.name} -n {self.namespace}",
        )

    def logs(
        self,
        *,
        follow: bool = False,
        attempt: int | None = None,
        tail: int | None = None,
        observer: Observer | None = None,
    ) -> Iterator[str]:
        """
        What the driver and the ranks printed, line by line.

        It comes from the store. Of a run that has left nothing there it is what the cluster still
        has: the end of the driver's output, or that of the head pod.

        Args:
            follow: Go on until the run has ended, over all attempts to come.
            attempt: Of this attempt alone; left out: of all of them.
            tail: Only the last so many lines of what is there already.
            observer: Is told when the store goes away while it is followed, and where lines come
                from that are not from the store.

        Raises:
            RunNotFoundError: If it has no such attempt.
            StoreError: If the store of the run can't be read from here.
        """
        reader = LogReader(self._view(), self._has_ended, observer=observer)
        lines = reader.lines(follow=follow, attempt=attempt, tail=tail)
        if attempt is not None:
            return lines
        return self._or_unstored(lines, tail, observer or SilentObserver())

    def suspend(self) -> bool:
        """
        Pause: pods save and end, the quota is given back, the run stays.

        Under Kueue by deactivating the Workload: Kueue undoes ``spec.suspend`` at once, with the
        old pods still training.

        Returns:
            False if its user had suspended it before: then it stays as it is.

        Raises:
            RunNotFoundError: If it is not there, or has ended.
            ClusterError: If Kueue has not taken note of it yet.
        """
        rayjob = self._unended("suspended")
        workload = self._workload(rayjob)
        is_marked = mark_of(rayjob, SUSPENDED) is not None
        if is_marked and not _is_let_go(rayjob, workload):
            return False
        if not is_marked:
            # The mark first: nobody must take this for somebody else's act.
            self._mark(SUSPENDED)
        self._set_going(workload, False)
        return True

    def resume(self) -> bool:
        """
        Let a suspended run go on, from its last checkpoint.

        Returns:
            False if it was not suspended: then it goes on as it does.

        Raises:
            RunNotFoundError: If it is not there, or has ended.
            ClusterError: If Kueue has not taken note of it yet.
        """
        rayjob = self._unended("resumed")
        workload = self._workload(rayjob)
        if mark_of(rayjob, SUSPENDED) is None and _is_let_go(rayjob, workload):
            return False
        self._set_going(workload, True)
        self._annotate(SUSPENDED, None)
        return True

    def cancel(
        self, *, now: bool = False, grace_s: float = _GRACE_S, observer: Observer | None = None
    ) -> None:
        """
        End it for good: it saves, tells MLflow, and nothing of it stays in the cluster.

        Args:
            now: Don't let it save.
            grace_s: How long saving may take.
            observer: Is told what happens.

        Raises:
            RunNotFoundError: If it is not there, or has ended.
        """
        self._unended("cancelled")
        self._mark(CANCELLED)
        if not now:
            self._let_save(grace_s, observer or SilentObserver())
        self.delete()

    def delete(self) -> None:
        """
        Remove it from the cluster, whatever it does; what is in the store stays.

        Raises:
            ClusterError: If it is not gone after two minutes.
        """
        remove(self._cluster, self.name, namespace=self.namespace, uid=self.uid)

    def _or_unstored(
        self, lines: Iterator[str], tail: int | None, observer: Observer
    ) -> Iterator[str]:
        """The lines, or where there are none, those that never came to the store."""
        line = None
        for line in lines:
            yield line
        if line is None and tail != 0:
            with suppress(RunNotFoundError):  # it has been deleted meanwhile
                yield from unstored_lines(
                    self._cluster, self._rayjob(), tail=tail, observer=observer
                )

    def _let_save(self, grace_s: float, observer: Observer) -> None:
        """Ask the attempt to save and end, if there is one that can and a store that answers."""
        try:
            view = self._view()
            if not within(_STORE_S, lambda: self._ask_to_stop(view)):
                observer.note("ended without a last checkpoint: its store does not answer")
                return
        except FootplateError as error:
            observer.note(f"ended without a last checkpoint: {error.message}")
            return
        if not _can_save(view.sight):
            return
        observer.note("saving a checkpoint, then ending; --now would end at once")
        deadline = time.monotonic() + grace_s
        while view.look_within(_STORE_S).result is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        if view.sight.result is None:
            observer.note(f"ended without a last checkpoint: not saved within {grace_s:g} s")

    def _ask_to_stop(self, view: StoreView) -> None:
        """What a driver that starts anew must find, and what the one that runs looks for."""
        store, paths = view.open(), view.record.paths
        said = json.dumps({"cancelled": signature(time.time())})
        store.put(paths.cancelled, said.encode())
        sight = view.look()
        if _can_save(sight):
            store.put(paths.attempt(sight.attempt).stop, b"{}")

    def _set_going(self, workload: dict[str, Any] | None, going: bool) -> None:
        if workload is None:
            spec = {"metadata": {"uid": self.uid}, "spec": {"suspend": not going}}
            self._cluster.patch(RAYJOB, self.name, spec, namespace=self.namespace)
            return
        metadata = workload["metadata"]
        active = {"metadata": {"uid": metadata["uid"]}, "spec": {"active": going}}
        self._cluster.patch(WORKLOAD, metadata["name"], active, namespace=self.namespace)

    def _workload(self, rayjob: dict[str, Any]) -> dict[str, Any] | None:
        """Kueue's, or None if Kueue has nothing to do with the run."""
        labels = rayjob["metadata"].get("labels") or {}
        if QUEUE_LABEL not in labels:
            return None
        chosen = f"{JOB_UID_LABEL}={self.uid}"
        found = self._cluster.list(WORKLOAD, namespace=self.namespace, labels=chosen)
        if not found:
            raise ClusterError(
                f"Kueue has made no Workload for {self.name} yet",
                "Try again in a moment; without one a pause would only be a restart.",
            )
        return found[0]

    def _mark(self, mark: str) -> None:
        self._annotate(mark, signature(time.time()))

    def _annotate(self, key: str, value: str | None) -> None:
        self._cluster.patch(
            RAYJOB,
            self.name,
            {"metadata": {"uid": self.uid, "annotations": {key: value}}},
            namespace=self.namespace,
        )

    def _rayjob(self) -> dict[str, Any]:
        rayjob = find_rayjob(self._cluster, self.name, self.namespace)
        if rayjob["metadata"]["uid"] != self.uid:
            raise RunNotFoundError(
                f"run {self.uid} of {self.name} is not in the cluster any more; another of that "
                "name is"
            )
        return rayjob

    def _unended(self, verb: str) -> dict[str, Any]:
        rayjob = self._rayjob()
        state = _deployment(rayjob)
        if state.has_ended:
            raise RunNotFoundError(
                f"{self.name} can't be {verb}: it has ended ({state})",
                f"footplate delete {self.name} removes it from the cluster.",
            )
        return rayjob

    def _has_ended(self) -> bool:
        try:
            return _deployment(self._rayjob()).has_ended
        except RunNotFoundError:
            return True
        except ClusterUnreachableError:
            return False  # nobody knows; ask again

    def _view(self) -> StoreView:
        record = read_identity(self._cluster, self.name, self.namespace, self.uid)
        if record is None:
            raise RunNotFoundError(
                f"{self.name} has no identity: its submission was interrupted",
                "Run the same footplate submit again; it finishes what is missing.",
            )
        return StoreView(record)


def _deployment(rayjob: dict[str, Any]) -> Deployment:
    return Deployment((rayjob.get("status") or {}).get("jobDeploymentStatus") or "")


def _is_let_go(rayjob: dict[str, Any], workload: dict[str, Any] | None) -> bool:
    """Whether nothing but its turn in the queue keeps it from running."""
    if workload is None:
        return not rayjob["spec"].get("suspend", False)
    return workload["spec"].get("active", True) is True


def _can_save(sight: StoreSight) -> bool:
    """Whether an attempt trains that looks for a request to stop."""
    progress = sight.progress
    if not sight.attempt or sight.result is not None or progress is None:
        return False
    return progress.stage not in ("preparing", "starting")
