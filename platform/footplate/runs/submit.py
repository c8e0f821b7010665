"""
Sending a job to a cluster.

The RayJob is created suspended, its UID is learnt, the ConfigMap that tells the pods who they
are is published with it, and only then is it let go: by Kueue where there is a queue, otherwise
here. A submission that ends anywhere in between is finished by repeating it; nothing is ever
created twice, because everything goes by the name of the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from footplate.cluster import CONFIG_MAP, RAYJOB, Cluster, connect, kind_of
from footplate.errors import (
    AccessDeniedError,
    ClusterError,
    ClusterUnreachableError,
    ObjectConflictError,
    ObjectMissingError,
    RejectedError,
    RunExistsError,
    StoreError,
)
from footplate.render import identity_name
from footplate.runs.handle import Run
from footplate.runs.marks import SUSPENDED, mark_of
from footplate.runs.observer import Observer, SilentObserver
from footplate.runs.removal import remove
from footplate.runs.submission import Answer, Submission, answer, prepare, refuse_unreachable
from footplate.spec import Job
from footplate.store import code_archive_path, open_store

__all__ = ["send", "submit"]

_TRIES = 5
_PAUSE_S = 0.5


def submit(
    job: Job,
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    replace: bool = False,
    source: str | None = None,
    observer: Observer | None = None,
) -> Run:
    """
    Send a job to a cluster; the same call finishes what was interrupted.

    Args:
        namespace: Left out: that of the kubeconfig's context.
        context: Of the kubeconfig; left out: the current one.
        kubeconfig: File; left out: where kubectl looks, then the pod's own account.
        replace: Whether a run of the same name may be deleted for this one.
        source: The spec file, for the line numbers of problems.
        observer: Is told what happens.

    Raises:
        SpecError: If the job, what it names or its code is wrong.
        RunExistsError: If another run of that name is there; nothing is changed.
        RejectedError: If the API server or an admission webhook refuses an object.
        ClusterError: If the cluster fails or does not allow it.
        StoreError: If the code can't be uploaded.
    """
    refuse_unreachable(job, source)
    cluster = connect(kubeconfig=kubeconfig, context=context, namespace=namespace)
    submission = prepare(job, namespace=cluster.namespace, source=source)
    return send(cluster, submission, replace=replace, observer=observer)


def send(
    cluster: Cluster,
    submission: Submission,
    *,
    replace: bool = False,
    observer: Observer | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Run:
    """
    Send what was prepared; see :func:`submit`.

    Args:
        sleep: Waits between tries, in seconds.
    """
    return _Sender(cluster, submission, observer or SilentObserver(), sleep).send(replace)


class _Sender:
    """One submission on its way."""

    def __init__(
        self,
        cluster: Cluster,
        submission: Submission,
        observer: Observer,
        sleep: Callable[[float], None],
    ) -> None:
        self._cluster = cluster
        self._submission = submission
        self._observer = observer
        self._sleep = sleep
        self._name = submission.job.name
        self._namespace = submission.namespace
        self._wanted, _ = submission.objects()

    def send(self, replace: bool) -> Run:
        """Make what is missing."""
        there = self._try_out()
        keeps = there is not None and self._settle(there, replace) is Answer.FINISH
        if there is None or not keeps:
            # All that can be refused comes first: a run gives way to one that can be made.
            self._try_out_pods()
            self._upload()
            if there is not None:
                self._remove(there)
            there = self._create()
        uid = there["metadata"]["uid"]
        self._publish_identity(uid)
        self._let_go(there)
        return Run(self._cluster, self._name, namespace=self._namespace, uid=uid)

    def _try_out(self) -> dict[str, Any] | None:
        """Ask the API server and its webhooks about the RayJob; the one that is there, if any."""
        try:
            self._cluster.create(self._wanted, dry_run=True)
        except ObjectConflictError:
            return self._cluster.find(RAYJOB, self._name, namespace=self._namespace)
        except ObjectMissingError as error:
            raise ClusterError(
                f"no RayJob can be made in namespace {self._namespace}: {error.message}",
                "Is that the right namespace (-n), and is KubeRay installed in the cluster?",
            ) from error
        return None

    def _settle(self, there: dict[str, Any], replace: bool) -> Answer:
        """What to do about a RayJob that is there, if anything may be done."""
        identity = self._cluster.find(
            CONFIG_MAP, identity_name(self._name), namespace=self._namespace
        )
        decision, why = answer(
            there,
            self._wanted,
            has_identity=identity is not None and _belongs(identity, there["metadata"]["uid"]),
            replace=replace,
        )
        if decision is Answer.REFUSE:
            raise RunExistsError(
                f"{why}; nothing was changed",
                f"footplate status {self._name} shows it. Add --replace to delete it and start a "
                "new run, or give this one another name.",
            )
        self._observer.note(why)
        return decision

    def _remove(self, there: dict[str, Any]) -> None:
        remove(
            self._cluster,
            self._name,
            namespace=self._namespace,
            uid=there["metadata"]["uid"],
            sleep=self._sleep,
        )

    def _try_out_pods(self) -> None:
        """
        Ask the API server about pods of both templates.

        It takes any template of a RayJob; what is wrong with a pod would only show as a job that
        never starts, with its quota held.
        """
        cluster = self._wanted["spec"]["rayClusterSpec"]
        groups = {"head": cluster["headGroupSpec"]} | {
            group["groupName"]: group for group in cluster["workerGroupSpecs"]
        }
        try:
            for group, spec in groups.items():
                self._try_out_pod(_pod(self._name, group, self._namespace, spec["template"]))
        except AccessDeniedError:
            self._observer.note("pods are not tried out: creating pods is not allowed here")

    def _try_out_pod(self, pod: dict[str, Any]) -> None:
        try:
            self._cluster.create(pod, dry_run=True)
        except RejectedError as error:
            if not _is_for_now(error):
                raise
            self._observer.note(f"for now: {error.message}")

    def _upload(self) -> None:
        archive = self._submission.archive
        if archive is None:
            return
        try:
            # Also if it is there: it may be damaged, and written anew it counts as used lately.
            store = open_store(self._submission.job)
            store.put(code_archive_path(archive.digest), archive.content)
        except StoreError as error:
            raise StoreError(
                f"the code can't be uploaded: {error.message}",
                "Submitting writes to the store, by the credentials of this environment "
                "(for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or a profile).",
            ) from error

    def _create(self) -> dict[str, Any]:
        """Create the RayJob, at most one; or find what somebody else has made right now."""

        def is_kept(there: dict[str, Any]) -> bool:
            if self._settle(there, replace=False) is Answer.FINISH:
                return True
            self._remove(there)
            return False

        made = self._make(self._wanted, is_kept)
        if made is None:
            raise RunExistsError(
                f"{self._name} was made and deleted by somebody else {_TRIES} times meanwhile"
            )
        return made

    def _publish_identity(self, uid: str) -> None:
        """Create the ConfigMap of this very RayJob; pods wait until it is there."""
        _, identity = self._submission.objects(uid)
        name = identity["metadata"]["name"]

        def is_kept(there: dict[str, Any]) -> bool:
            if _belongs(there, uid):
                return True
            # Of an earlier RayJob of this name, about to be collected.
            self._cluster.delete(
                CONFIG_MAP, name, namespace=self._namespace, uid=there["metadata"]["uid"]
            )
            return False

        if self._make(identity, is_kept) is None:
            raise ObjectConflictError(
                f"the ConfigMap {name} is made by somebody else again and again",
                "Is another submit of the same name running? Run the same command again.",
            )

    def _make(
        self, wanted: dict[str, Any], is_kept: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any] | None:
        """
        Create an object, at most one, whatever happens to requests and answers.

        Args:
            is_kept: Whether one of that name that is there will do, as the one of an earlier try
                whose answer was lost; if not, it makes room.

        Returns:
            The object; None if one that will not do is there again and again.
        """
        for attempt in range(_TRIES):
            try:
                return self._cluster.create(wanted)
            except ClusterUnreachableError:
                if attempt == _TRIES - 1:
                    raise
                self._sleep(_PAUSE_S * 2**attempt)
            except ObjectConflictError:
                there = self._cluster.find(
                    kind_of(wanted), wanted["metadata"]["name"], namespace=self._namespace
                )
                if there is not None and is_kept(there):
                    return there
        return None

    def _let_go(self, there: Mapping[str, Any]) -> None:
        """Let the job start where no queue does: once, and never what its user has suspended."""
        if self._submission.job.queue is not None or not there["spec"].get("suspend"):
            return
        if mark_of(there, SUSPENDED) is not None:
            return
        going = {"metadata": {"uid": there["metadata"]["uid"]}, "spec": {"suspend": False}}
        self._cluster.patch(RAYJOB, self._name, going, namespace=self._namespace)


def _belongs(identity: Mapping[str, Any], uid: str) -> bool:
    owners = identity["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == uid for owner in owners)


def _pod(name: str, group: str, namespace: str, template: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {**template["metadata"], "generateName": f"{name}-{group}-", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _is_for_now(error: RejectedError) -> bool:
    """Whether the same pod may be taken later: a namespace's quota is full."""
    return "exceeded quota" in error.message
