"""Several selections in the background."""

from __future__ import annotations

import threading
import time

import pytest

from footplate.cluster import POD, RAYJOB, Change, Cluster, Informer, Selection
from footplate.errors import AccessDeniedError
from playback import Answer, Playback, event, listing, rayjob, status

_JOBS = "GET /apis/ray.io/v1/namespaces/team/rayjobs"
_PODS = "GET /api/v1/namespaces/team/pods"
_SELECTIONS = (Selection(kind=RAYJOB), Selection(kind=POD))
_OPEN = threading.Event()
_POD = {"metadata": {"name": "head", "uid": "uid-head", "resourceVersion": "3"}}


def _until_synced(informer: Informer) -> list[Change]:
    changes: list[Change] = []
    deadline = time.monotonic() + 10
    while not informer.is_synced:
        assert time.monotonic() < deadline
        changes += informer.changes(1)
    return changes


def test_follows_several_kinds(server: Playback, cluster: Cluster) -> None:
    """Changes of all kinds come through one call, and the objects are as of that call."""
    more = threading.Event()
    server.expect(_PODS, listing(_POD, version="9"), Answer(chunks=[_OPEN]))
    server.expect(
        _JOBS,
        listing(rayjob("a", "1"), version="9"),
        Answer(
            chunks=[
                more,
                event("MODIFIED", rayjob("a", "10")),
                event("ADDED", rayjob("b", "11")),
                event("DELETED", rayjob("a", "12")),
                _OPEN,
            ]
        ),
    )
    with Informer(cluster, _SELECTIONS) as informer:
        changes = _until_synced(informer)
        assert sorted(change.action for change in changes) == ["added"] * 2 + ["synced"] * 2
        assert [pod["kind"] for pod in informer.objects(POD)] == ["Pod"]
        assert informer.objects(RAYJOB) == [rayjob("a", "1")]
        assert informer.changes(0) == []
        more.set()
        later: list[Change] = []
        while len(later) < 3:
            later += informer.changes(5)
        assert [change.action for change in later] == ["modified", "added", "deleted"]
        assert informer.objects(RAYJOB) == [rayjob("b", "11")]
        assert informer.trouble is None


def test_ends_promptly(server: Playback, cluster: Cluster) -> None:
    """Leaving it takes no longer than a second, and leaves no thread behind."""
    for path in (_PODS, _JOBS):
        server.expect(path, listing(version="9"), Answer(chunks=[_OPEN]))
    before = threading.active_count()
    with Informer(cluster, _SELECTIONS) as informer:
        _until_synced(informer)
        started = time.monotonic()
    assert time.monotonic() - started < 1.0
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"watch pods", "watch rayjobs"}, before


def test_errors_reach_the_caller(server: Playback, cluster: Cluster) -> None:
    """A thread that may not list does not end in silence."""
    denied = 'pods is forbidden: User "jane" cannot list resource "pods" in API group ""'
    server.expect(_PODS, status(403, denied))
    with (
        Informer(cluster, [Selection(kind=POD)]) as informer,
        pytest.raises(AccessDeniedError, match="jane is not allowed to list pods"),
    ):
        informer.changes(5)


def test_says_that_it_is_cut_off(server: Playback, cluster: Cluster) -> None:
    """While the server cannot be reached there is a line that says so, and then no more."""
    back = threading.Event()
    server.expect(
        _JOBS,
        status(503, "starting"),
        listing(rayjob("a", "1"), version="9"),
        Answer(chunks=[back, _OPEN]),
    )
    with Informer(cluster, [Selection(kind=RAYJOB)]) as informer:
        deadline = time.monotonic() + 5
        while informer.trouble is None:
            assert time.monotonic() < deadline
            informer.changes(0.01)
        assert "cannot list rayjobs.ray.io in namespace team now" in informer.trouble
        _until_synced(informer)
        while informer.trouble is not None:
            assert time.monotonic() < deadline
            informer.changes(0.01)
