"""A run in a cluster, as scripts hold it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from footplate.cluster import RAYJOB, WORKLOAD, Cluster, connect
from footplate.errors import ClusterError, RunNotFoundError, StoreError, WaitTimeoutError
from footplate.runs.finding import find_rayjob
from footplate.runs.logs import LogReader
from footplate.runs.looking import read_identity, related
from footplate.runs.marks import CANCELLED, SUSPENDED, signature
from footplate.runs.observer import Observer, SilentObserver
from footplate.runs.state import RunState
from footplate.runs.store_view import StoreView
from footplate.runs.watching import Watching, look

__all__ = ["Run", "find_run"]

_DELETION_S = 120.0
_PAUSE_S = 0.5
# How long a cancelled run may take to save and to tell MLflow.
_GRACE_S = 90.0
_ENDED = ("Complete", "Failed", "ValidationFailed")


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
        state = None
        for state in self.states(timeout_s, observer=observer):
            if on_state is not None:
                on_state(state)
        state = state or self.status()
        if state.is_terminal:
            return state
        raise WaitTimeoutError(
            f"{self.name} has not ended within {timeout_s:g} s: {state.reason}",
            f"It goes on. Watch it: footplate watch {self.name} -n {self.namespace}",
        )

    def logs(
        self, *, follow: bool = False, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[str]:
        """
        What the driver and the ranks printed, line by line.

        Args:
            follow: Go on until the run has ended, over all attempts to come.
            attempt: Of this attempt alone; left out: of all of them.
            tail: Only the last so many lines of what is there already.

        Raises:
            StoreError: If the store of the run can't be read from here.
        """
        return LogReader(self._view(), self._has_ended).lines(
            follow=follow, attempt=attempt, tail=tail
        )

    def suspend(self) -> None:
        """
        Pause: pods save and end, the quota is given back, the run stays.

        Under Kueue by deactivating the Workload: Kueue undoes ``spec.suspend`` at once, with the
        old pods still training.

        Raises:
            RunNotFoundError: If it is not there, or has ended.
        """
        rayjob = self._unended("suspended")
        # The mark first: nobody must take this for somebody else's act.
        self._mark(SUSPENDED)
        self._set_going(rayjob, False)

    def resume(self) -> None:
        """
        Let a suspended run go on, from its last checkpoint.

        Raises:
            RunNotFoundError: If it is not there, or has ended.
        """
        rayjob = self._unended("resumed")
        self._set_going(rayjob, True)
        self._annotate(SUSPENDED, None)

    def cancel(self, *, now: bool = False, observer: Observer | None = None) -> None:
        """
        End it for good: it saves, tells MLflow, and nothing of it stays in the cluster.

        Args:
            now: Don't let it save.

        Raises:
            RunNotFoundError: If it is not there, or has ended.
        """
        observer = observer or SilentObserver()
        self._unended("cancelled")
        self._mark(CANCELLED)
        try:
            view = self._view()
            said = json.dumps({"cancelled": signature(time.time())})
            view.open().put(view.record.paths.cancelled, said.encode())
            if not now:
                self._let_save(view, observer)
        except (StoreError, RunNotFoundError) as error:
            observer.note(f"ended without a last checkpoint: {error.message}")
        self.delete()

    def delete(self) -> None:
        """
        Remove it from the cluster, whatever it does; what is in the store stays.

        Raises:
            ClusterError: If it is not gone after two minutes.
        """
        self._cluster.delete(RAYJOB, self.name, namespace=self.namespace, uid=self.uid)
        deadline = time.monotonic() + _DELETION_S
        while time.monotonic() < deadline:
            there = self._cluster.find(RAYJOB, self.name, namespace=self.namespace)
            if there is None or there["metadata"]["uid"] != self.uid:
                return
            time.sleep(_PAUSE_S)
        raise ClusterError(
            f"{self.name} was deleted {_DELETION_S:.0f} s ago and is still there",
            f"Something holds it: kubectl -n {self.namespace} get rayjob {self.name} -o yaml "
            "shows its finalizers.",
        )

    def _let_save(self, view: StoreView, observer: Observer) -> None:
        """Ask the attempt to save and end, if there is one that can."""
        sight = view.look()
        if not sight.attempt or sight.result is not None or sight.progress is None:
            return
        observer.note("saving a checkpoint, then ending; --now would end at once")
        view.open().put(view.record.paths.attempt(sight.attempt).stop, b"{}")
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and view.look().result is None:
            time.sleep(_PAUSE_S)

    def _set_going(self, rayjob: dict[str, Any], going: bool) -> None:
        workload = self._workload(rayjob)
        if workload is not None:
            self._cluster.patch(
                WORKLOAD,
                workload["metadata"]["name"],
                {"spec": {"active": going}},
                namespace=self.namespace,
            )
        else:
            self._cluster.patch(
                RAYJOB, self.name, {"spec": {"suspend": not going}}, namespace=self.namespace
            )

    def _workload(self, rayjob: dict[str, Any]) -> dict[str, Any] | None:
        found = related(self._cluster, rayjob)
        return next((thing for thing in found if thing.get("kind") == WORKLOAD.kind), None)

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
        state = (rayjob.get("status") or {}).get("jobDeploymentStatus")
        if state in _ENDED:
            raise RunNotFoundError(
                f"{self.name} can't be {verb}: it has ended ({state})",
                f"footplate delete {self.name} removes it from the cluster.",
            )
        return rayjob

    def _has_ended(self) -> bool:
        with suppress(RunNotFoundError):
            rayjob = self._rayjob()
            return (rayjob.get("status") or {}).get("jobDeploymentStatus") in _ENDED
        return True

    def _view(self) -> StoreView:
        record = read_identity(self._cluster, self.name, self.namespace, self.uid)
        if record is None:
            raise RunNotFoundError(
                f"{self.name} has no identity: its submission was interrupted",
                "Run the same footplate submit again; it finishes what is missing.",
            )
        return StoreView(record)
