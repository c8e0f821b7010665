"""The Ray dashboard of a run at an address of this machine, and where MLflow shows the run."""

from __future__ import annotations

import base64
import errno
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from footplate.cluster import (
    POD,
    RAYCLUSTER,
    RAYJOB,
    SECRET,
    WORKLOAD,
    Cluster,
    Informer,
    LocalProxy,
    PortForward,
    Upstream,
    connect,
)
from footplate.errors import ClusterUnreachableError, FootplateError, RunNotFoundError
from footplate.runs.fields import Fields, string
from footplate.runs.finding import find_rayjob
from footplate.runs.looking import read_identity, readable, selections
from footplate.runs.mlflow_page import mlflow_page
from footplate.runs.observer import Observer, SilentObserver
from footplate.runs.phase import Phase
from footplate.runs.pod import Pod
from footplate.runs.silence import Silence
from footplate.runs.snapshot import Snapshot
from footplate.runs.state import RunState, state_of

__all__ = ["DEFAULT_PORT", "Dashboard", "Head", "find_head", "open_dashboard"]

DEFAULT_PORT = 8265
"""Ray's own, here as there."""

# Given the usual Authorization, Ray would hand the token to the browser, as a cookie.
_TOKEN_HEADER = "X-Ray-Authorization"  # noqa: S105
_TOKEN_KEY = "auth_token"  # noqa: S105
_PAUSE_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """
    Where the dashboard of a run is.

    Attributes:
        pod: Name of the head pod; a new head has a new one.
        job: The id under which the driver was submitted to Ray.
        secret: Name of the Secret with the token; None if Ray asks for none.
    """

    pod: str
    job: str
    secret: str | None


def find_head(rayjob: Fields, pods: Sequence[Fields]) -> Head | None:
    """The head of the RayCluster that a RayJob has now, once its container runs."""
    cluster = string(rayjob, "status", "rayClusterName")
    running = [
        pod
        for pod in map(Pod, pods)
        if cluster and pod.cluster == cluster and pod.is_head
        if pod.phase == "Running" and not pod.is_ending
    ]
    if not running:
        return None
    newest = max(running, key=lambda pod: string(pod.object, "metadata", "creationTimestamp"))
    return Head(
        pod=newest.name,
        job=string(rayjob, "status", "jobId"),
        secret=_secret_name(rayjob, cluster),
    )


def _secret_name(rayjob: Fields, cluster: str) -> str | None:
    options = "spec", "rayClusterSpec", "authOptions"
    if string(rayjob, *options, "mode") != "token":
        return None
    # KubeRay makes one for each RayCluster, and gives it the same name.
    return string(rayjob, *options, "secretName") or cluster


def open_dashboard(
    name: str,
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    port: int | None = None,
    observer: Observer | None = None,
) -> Dashboard:
    """
    The dashboard of a run in a cluster; enter it to serve it.

    Args:
        namespace: Left out: that of the kubeconfig's context.
        context: Of the kubeconfig; left out: the current one.
        kubeconfig: File; left out: where kubectl looks, then the pod's own account.
        port: See :class:`Dashboard`.
        observer: Is told when the cluster goes away, and when it is back.

    Raises:
        RunNotFoundError: If there is no such run.
        ClusterError: If the cluster fails or does not allow it.
        OSError: If the port is taken.
    """
    cluster = connect(kubeconfig=kubeconfig, context=context, namespace=namespace)
    rayjob = find_rayjob(cluster, name, cluster.namespace)
    return Dashboard(cluster, rayjob, port=port, observer=observer)


class Dashboard:
    """
    The Ray dashboard of a run, served at an address of this machine while it is entered.

    It needs no token here: whoever can connect to this machine's loopback can use it. To enter
    it raises :class:`~footplate.errors.RunNotFoundError` if the run has no cluster and is not
    about to have one.

    Args:
        rayjob: As the API server gives it.
        port: To listen on; left out: :data:`DEFAULT_PORT`, or a free one if that is taken.
        observer: Is told when the cluster goes away, and when it is back.

    Attributes:
        state: Where the run stands; known once it is entered.
    """

    state: RunState

    def __init__(
        self,
        cluster: Cluster,
        rayjob: dict[str, Any],
        *,
        port: int | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.name = string(rayjob, "metadata", "name")
        self.namespace = string(rayjob, "metadata", "namespace")
        self._cluster = cluster
        self._rayjob: Fields = rayjob
        self._uid = string(rayjob, "metadata", "uid")
        self._head: Head | None = None
        chosen = selections(self.name, self.namespace, self._uid)
        self._silence = Silence(observer or SilentObserver())
        kept, self._unseen = readable(cluster, chosen, needed=(RAYJOB, RAYCLUSTER, POD))
        self._informer = Informer(cluster, kept)
        self._proxy = _bound(port)

    def __enter__(self) -> Self:
        self._proxy.__enter__()
        self._informer.__enter__()
        try:
            while not self._informer.is_synced:
                self._informer.changes(_PAUSE_S)
                self._silence.look(self._informer.trouble, "waiting for it")
            self._look()
            self._refuse_if_over()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *details: object) -> None:
        self._informer.__exit__(None, None, None)
        self._proxy.__exit__(*details)

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return self._proxy.address

    @property
    def job_page(self) -> str | None:
        """The page of this run in the dashboard; None while there is no cluster."""
        return f"{self.address}/#/jobs/{self._head.job}" if self._head is not None else None

    def mlflow_page(self) -> str | None:
        """The page of this run in MLflow, or the command that shows it; None for no MLflow."""
        record = read_identity(self._cluster, self.name, self.namespace, self._uid)
        return mlflow_page(record) if record is not None else None

    def follow(self) -> Iterator[str]:
        """
        Go with the run from cluster to cluster, until it has ended.

        Yields:
            What a person should know, in sentences: that it has moved, is away, or has ended.

        Raises:
            AccessDeniedError: If what is needed may not be read (any more).
        """
        while not self.state.is_terminal:
            self._informer.changes(_PAUSE_S)
            self._silence.look(self._informer.trouble, "what is shown may be old")
            before = self._head
            self._look()
            if self._head is not None and self._head != before:
                yield f"the dashboard is in pod {self._head.pod} now: {self.job_page}"
            elif self._head is None and before is not None and not self.state.is_terminal:
                yield f"no dashboard at the moment: {self.state.reason}"
        yield f"no dashboard any more: {self.state.reason}"

    def _look(self) -> None:
        """See where the run stands, and pass requests on to where its dashboard is now."""
        snapshot = self._snapshot()
        self.state = state_of(snapshot, now=time.time())
        head = find_head(snapshot.rayjob, snapshot.pods)
        if head is None or head != self._head:
            upstream = self._upstream(head) if head is not None else None
            self._head = head if upstream is not None else None
            self._proxy.serve(upstream or f"{self.name} is {self.state.phase}: {self.state.reason}")

    def _snapshot(self) -> Snapshot:
        there = (thing for thing in self._informer.objects(RAYJOB) if self._is_own(thing))
        rayjob = next(there, None)
        self._rayjob = rayjob or self._rayjob
        cluster = string(self._rayjob, "status", "rayClusterName")
        clusters = self._informer.objects(RAYCLUSTER)
        return Snapshot(
            rayjob=self._rayjob,
            workload=next(iter(self._informer.objects(WORKLOAD)), None),
            raycluster=next(
                (c for c in clusters if string(c, "metadata", "name") == cluster), None
            ),
            pods=self._informer.objects(POD),
            is_deleted=rayjob is None,
            unseen=self._unseen | {"store"},
        )

    def _is_own(self, rayjob: Fields) -> bool:
        return string(rayjob, "metadata", "uid") == self._uid

    def _upstream(self, head: Head) -> Upstream | None:
        """The dashboard in a head pod; None while its token can't be read."""
        headers = {}
        if head.secret is not None:
            token = self._token(head.secret)
            if token is None:
                return None
            headers[_TOKEN_HEADER] = f"Bearer {token}"
        forward = PortForward(self._cluster, head.pod, DEFAULT_PORT, namespace=self.namespace)
        return Upstream(connect=forward.connect, headers=headers)

    def _token(self, secret: str) -> str | None:
        try:
            found = self._cluster.find(SECRET, secret, namespace=self.namespace)
        except ClusterUnreachableError:
            return None  # the next look may have more luck
        return base64.b64decode(string(found, "data", _TOKEN_KEY)).decode() or None

    def _refuse_if_over(self) -> None:
        if not (self.state.is_terminal or self.state.phase is Phase.SUSPENDED):
            return
        page = self._mlflow_page_if_known()
        raise RunNotFoundError(
            f"{self.name} has no dashboard: {self.state.reason}",
            f"MLflow has it: {page}" if page is not None else "",
        )

    def _mlflow_page_if_known(self) -> str | None:
        try:
            return self.mlflow_page()
        except FootplateError:
            return None  # what is to be said is another error


def _bound(port: int | None) -> LocalProxy:
    if port is not None:
        return LocalProxy(port)
    try:
        return LocalProxy(DEFAULT_PORT)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return LocalProxy(0)
