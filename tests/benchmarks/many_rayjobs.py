"""A namespace full of RayJobs, some of which end while somebody looks."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from footplate.cluster import RAYJOB, Cluster, connect
from footplate.render import render
from footplate.runtimes import find_runtime
from footplate.spec import load
from testbed import Testbed, wait_until

__all__ = ["ManyRayJobs", "many_rayjobs"]

_NAMESPACE = "bench-watch"
_RECIPE = Path(__file__).resolve().parents[2] / "rayjobs" / "digits.toml"
_THREADS = 8
_REMOVAL_S = 180.0
_STARTED = "2026-01-01T12:00:00Z"
_ENDED = "2026-01-01T13:00:00Z"


class ManyRayJobs:
    """
    RayJobs of recipes, which no operator touches.

    Half of them have ended, and one more each second while they change.

    Args:
        cluster: Where; works in a namespace of its own.
        count: How many.
    """

    def __init__(self, cluster: Cluster, count: int) -> None:
        self.namespace = cluster.namespace
        self.count = count
        self.ended = count // 2
        self._cluster = cluster

    def create(self) -> None:
        """Make them all, each with a status as KubeRay writes it."""
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._cluster.create, _rendered(self.namespace, self.count)))
            list(threads.map(self._set_status, range(self.count)))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One of them ends each second."""
        stop = threading.Event()

        def change() -> None:
            while not stop.wait(1.0):
                self.ended += 1
                self._set_status(self.ended - 1)

        thread = threading.Thread(target=change, name="changes")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _set_status(self, number: int) -> None:
        status = _status(_name(number), has_ended=number < self.ended)
        self._cluster.patch(RAYJOB, _name(number), {"status": status}, subresource="status")


@contextmanager
def many_rayjobs(testbed: Testbed, count: int) -> Iterator[ManyRayJobs]:
    """As many RayJobs as asked for; they and their namespace are gone afterwards."""
    cluster = connect(kubeconfig=str(testbed.kubeconfig), namespace=_NAMESPACE)
    _remove(testbed)
    testbed.kubectl("create", "namespace", _NAMESPACE)
    try:
        rayjobs = ManyRayJobs(cluster, count)
        rayjobs.create()
        yield rayjobs
    finally:
        _remove(testbed)


def _remove(testbed: Testbed) -> None:
    testbed.kubectl("delete", "namespace", _NAMESPACE, "--ignore-not-found", "--wait=false")
    wait_until(
        lambda: not testbed.kubectl("get", "namespace", _NAMESPACE, "--ignore-not-found"),
        _REMOVAL_S,
        f"namespace {_NAMESPACE} is gone",
    )


def _rendered(namespace: str, count: int) -> Iterator[dict[str, Any]]:
    job = load(_RECIPE)
    runtime = find_runtime(job.runtime)
    for number in range(count):
        rayjob, _ = render(
            job.model_copy(update={"name": _name(number)}), runtime, namespace=namespace
        )
        # KubeRay leaves to others what is managed by them.
        rayjob["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
        yield rayjob


def _name(number: int) -> str:
    return f"digits-{number:04}"


def _status(name: str, *, has_ended: bool) -> dict[str, Any]:
    cluster = f"{name}-x7k2p"
    status: dict[str, Any] = {
        "jobId": f"{name}-5tq8z",
        "jobStatus": "RUNNING",
        "jobDeploymentStatus": "Running",
        "rayClusterName": cluster,
        "dashboardURL": f"{cluster}-head-svc.{_NAMESPACE}.svc.cluster.local:8265",
        "startTime": _STARTED,
        "rayJobInfo": {"startTime": _STARTED},
        "rayClusterStatus": _cluster_status(cluster),
    }
    if has_ended:
        status |= {
            "jobStatus": "SUCCEEDED",
            "jobDeploymentStatus": "Complete",
            "message": "Job finished successfully.",
            "endTime": _ENDED,
            "rayJobInfo": {"startTime": _STARTED, "endTime": _ENDED},
            "succeeded": 1,
        }
    return status


def _cluster_status(cluster: str) -> dict[str, Any]:
    return {
        "state": "ready",
        "desiredWorkerReplicas": 2,
        "readyWorkerReplicas": 2,
        "availableWorkerReplicas": 2,
        "desiredCPU": "5",
        "desiredMemory": "12Gi",
        "desiredGPU": "0",
        "desiredTPU": "0",
        "conditions": [_condition(*each) for each in _CONDITIONS],
        "endpoints": {
            "client": "10001",
            "dashboard": "8265",
            "gcs-server": "6379",
            "metrics": "8080",
        },
        "head": {
            "podIP": "10.244.1.29",
            "podName": f"{cluster}-head-nmgpf",
            "serviceIP": "10.244.1.29",
            "serviceName": f"{cluster}-head-svc",
        },
        "lastUpdateTime": _STARTED,
        "observedGeneration": 1,
        "stateTransitionTimes": {"ready": _STARTED},
    }


_CONDITIONS: Sequence[tuple[str, str, str]] = (
    ("HeadPodReady", "True", "HeadPodRunningAndReady"),
    ("RayClusterProvisioned", "True", "AllPodRunningAndReadyFirstTime"),
    ("RayClusterSuspended", "False", "RayClusterSuspended"),
    ("RayClusterSuspending", "False", "RayClusterSuspending"),
)


def _condition(kind: str, status: str, reason: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": _STARTED,
    }
