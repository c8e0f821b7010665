"""What a run printed that never came to its store."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.cluster import Cluster
from footplate.runs.observer import SilentObserver
from footplate.runs.unstored_log import unstored_lines
from playback import Answer, Playback, listing, rayjob, status

_PODS = "GET /api/v1/namespaces/team/pods"
_LOG = "GET /api/v1/namespaces/team/pods/head-2/log"
_MESSAGE = (
    "Job entrypoint command failed with exit code 13, last available logs (truncated to 20,000 "
    "chars):\nRunning entrypoint for job digits-x: python -m footplate.train\n"
    "footplate: the store refuses: 403\n"
)


class _Notes(SilentObserver):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.said.append(text)


@pytest.fixture
def notes() -> _Notes:
    """Who reads."""
    return _Notes()


def _pod(name: str, created: str, kind: str = "head", cluster: str = "digits-2") -> dict[str, Any]:
    labels = {"ray.io/node-type": kind, "ray.io/cluster": cluster}
    metadata = {"name": name, "namespace": "team", "creationTimestamp": created, "labels": labels}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": f"ray-{kind}"}, {"name": "proxy"}]},
    }


_THERE = listing(
    _pod("head-0", "2026-11-29T14:09:00Z", cluster="digits-1"),
    _pod("head-1", "2026-11-29T14:05:00Z"),
    _pod("head-2", "2026-11-29T14:06:00Z"),
    _pod("worker", "2026-11-29T14:07:00Z", kind="worker"),
    version="1",
)


def test_a_driver_that_died_early_is_read_from_its_rayjob(cluster: Cluster, notes: _Notes) -> None:
    """Its pods are gone, and KubeRay has kept the last that it printed."""
    job = rayjob("digits", "1", message=_MESSAGE, rayClusterName="digits-2")
    lines = list(unstored_lines(cluster, job, tail=None, observer=notes))
    assert [line.split()[0] for line in lines] == ["Running", "footplate:"]
    assert notes.said == [
        "nothing is in the store of digits; its RayJob has the last that the driver printed:"
    ]
    tail = unstored_lines(cluster, job, tail=1, observer=notes)
    assert list(tail) == ["footplate: the store refuses: 403"]


def test_before_there_is_a_driver_the_head_tells_why(
    server: Playback, cluster: Cluster, notes: _Notes
) -> None:
    """The newest head of the RayCluster of now, and in it the container that is Ray's."""
    server.expect(_PODS, _THERE)
    server.expect(_LOG, Answer(body=b"ray: command not found\n"))
    job = rayjob("digits", "1", message="Job is pending", rayClusterName="digits-2")
    assert list(unstored_lines(cluster, job, tail=9, observer=notes)) == ["ray: command not found"]
    assert notes.said == ["nothing is in the store of digits yet; its head pod head-2 has printed:"]
    assert server.queries(_LOG) == [{"container": "ray-head", "tailLines": "9"}]
    assert server.queries(_PODS)[0]["labelSelector"] == "footplate.dev/name=digits"


def test_a_head_that_has_not_printed_is_no_error(
    server: Playback, cluster: Cluster, notes: _Notes
) -> None:
    """There is nothing to read, and nothing to say about it."""
    waiting = 'container "ray-head" in pod "head-2" is waiting to start: ContainerCreating'
    server.expect(_PODS, _THERE)
    server.expect(_LOG, status(400, waiting, reason="BadRequest"))
    job = rayjob("digits", "1", rayClusterName="digits-2")
    assert list(unstored_lines(cluster, job, tail=None, observer=notes)) == []
    assert list(unstored_lines(cluster, rayjob("digits", "1"), tail=None, observer=notes)) == []
    assert notes.said == []


def test_who_may_not_read_pods_is_told_so(
    server: Playback, cluster: Cluster, notes: _Notes
) -> None:
    """The permission is for a last resort: to lack it is no failure of the command."""
    denied = 'pods "head-2" is forbidden: User "jane" cannot get resource "pods/log" in API group'
    server.expect(_PODS, _THERE)
    server.expect(_LOG, status(403, denied, reason="Forbidden"))
    job = rayjob("digits", "1", rayClusterName="digits-2")
    assert list(unstored_lines(cluster, job, tail=None, observer=notes)) == []
    (said,) = notes.said
    assert said.startswith("nothing is in the store of digits, and jane is not allowed to get")
