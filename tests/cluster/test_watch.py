"""Following objects through everything that interrupts a watch."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from footplate.cluster import RAYJOB, Change, Cluster, Selection, Stop, follow
from footplate.errors import (
    AccessDeniedError,
    ClusterError,
    ClusterUnreachableError,
    ObjectMissingError,
)
from playback import (
    QUICK,
    Answer,
    Playback,
    bookmark,
    cluster_at,
    event,
    listing,
    make_certificate,
    rayjob,
    status,
    taken,
)

_PATH = "/apis/ray.io/v1/namespaces/team/rayjobs"
_LIST = f"GET {_PATH}"
_SELECTION = Selection(kind=RAYJOB, labels="footplate.dev/name")
_DENIED = status(
    403,
    'rayjobs.ray.io is forbidden: User "jane" cannot list resource "rayjobs" in API group '
    '"ray.io" in the namespace "team"',
)
# What a watch ends with if the test is not about its end.
_OPEN = threading.Event()


class Following:
    """One follow(), with its troubles."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.stop = Stop()
        self.troubles: list[ClusterError | None] = []
        self.changes = follow(
            cluster,
            _SELECTION,
            stop=self.stop,
            on_trouble=self.troubles.append,
            backoff=QUICK,
            **options,
        )

    def next(self, count: int) -> list[tuple[str, str]]:
        """The next so many changes: what, to which version of which object."""
        return [_short(change) for change in taken(self.changes, count)]

    def end(self) -> list[Change]:
        """Stop, and what is still told."""
        self.stop.set()
        return list(self.changes)


def _short(change: Change) -> tuple[str, str]:
    if change.object is None:
        return change.action, ""
    metadata = change.object["metadata"]
    return change.action, f"{metadata['name']}@{metadata['resourceVersion']}"


def _watch(*chunks: bytes | threading.Event, is_cut: bool = False) -> Answer:
    return Answer(chunks=chunks, is_cut=is_cut)


def test_lists_then_watches(server: Playback, cluster: Cluster) -> None:
    """What is there is told page by page, then what happens; the watch goes on from the list."""
    server.expect(
        _LIST,
        listing(rayjob("a", "1"), version="9", next_page="token"),
        listing(rayjob("b", "2"), version="9"),
        _watch(
            event("ADDED", rayjob("c", "10")),
            event("MODIFIED", rayjob("a", "11"))[:50],
            event("MODIFIED", rayjob("a", "11"))[50:] + bookmark("12"),
            event("DELETED", rayjob("b", "13")),
            _OPEN,
        ),
    )
    following = Following(cluster)
    assert following.next(6) == [
        ("added", "a@1"),
        ("added", "b@2"),
        ("synced", ""),
        ("added", "c@10"),
        ("modified", "a@11"),
        ("deleted", "b@13"),
    ]
    assert following.end() == []
    first, second, watch = server.queries(_LIST)
    assert first == {"limit": "250", "labelSelector": "footplate.dev/name"}
    assert second == first | {"continue": "token"}
    assert 120 <= int(watch.pop("timeoutSeconds")) <= 240
    assert watch == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "9",
        "labelSelector": "footplate.dev/name",
    }
    assert following.troubles == [None]


@pytest.mark.parametrize("is_cut", [True, False])
def test_goes_on_where_it_was(server: Playback, cluster: Cluster, is_cut: bool) -> None:
    """Lost or ended by the server, the watch goes on from the last bookmark, without a list."""
    server.expect(
        _LIST,
        listing(rayjob("a", "1"), version="9"),
        _watch(event("MODIFIED", rayjob("a", "10")), bookmark("20"), is_cut=is_cut),
        Answer(is_cut=True),
        status(503, "shutting down"),
        _watch(event("MODIFIED", rayjob("a", "21")), _OPEN),
    )
    following = Following(cluster)
    wanted = [("added", "a@1"), ("synced", ""), ("modified", "a@10"), ("modified", "a@21")]
    assert following.next(4) == wanted
    following.end()
    versions = [query["resourceVersion"] for query in server.queries(_LIST)[1:]]
    assert versions == ["9", "20", "20", "20"]
    assert following.troubles[-1] is None
    assert any(isinstance(one, ClusterUnreachableError) for one in following.troubles)


@pytest.mark.parametrize(
    "gone",
    [
        status(410, "too old resource version: 10 (20)", reason="Expired"),
        _watch(event("ERROR", {"kind": "Status", "code": 410, "message": "too old"})),
    ],
    ids=["as status", "as event"],
)
def test_the_server_has_forgotten(server: Playback, cluster: Cluster, gone: Answer) -> None:
    """After a gap the difference is told: what vanished, what is new or changed, nothing else."""
    again = rayjob("b", "30")
    again["metadata"]["uid"] = "another"
    server.expect(
        _LIST,
        listing(rayjob("a", "1"), rayjob("b", "2"), rayjob("c", "3"), version="9"),
        _watch(event("MODIFIED", rayjob("a", "10"))),
        gone,
        listing(rayjob("a", "10"), again, rayjob("c", "31"), version="40"),
    )
    following = Following(cluster)
    following.next(5)
    assert following.next(4) == [
        ("deleted", "b@2"),
        ("added", "b@30"),
        ("modified", "c@31"),
        ("synced", ""),
    ]
    following.end()
    assert set(following.troubles) == {None}


def test_a_list_that_takes_too_long(server: Playback, cluster: Cluster) -> None:
    """Nothing of a list that could not be finished is told."""
    server.expect(
        _LIST,
        listing(rayjob("a", "1"), version="9", next_page="token"),
        status(410, "The provided continue parameter is too old", reason="Expired"),
        listing(rayjob("a", "5"), version="12"),
    )
    following = Following(cluster)
    assert following.next(2) == [("added", "a@5"), ("synced", "")]
    following.end()


def test_keeps_only_the_reduced_form(server: Playback, cluster: Cluster) -> None:
    """What is told of an object is what the caller keeps of it, its end after a gap included."""
    server.expect(
        _LIST,
        listing(rayjob("a", "1", big="x" * 1000), version="9"),
        status(410, "too old"),
        listing(version="12"),
    )
    following = Following(cluster, reduce=lambda obj: {"name": obj["metadata"]["name"]})
    changes = taken(following.changes, 4)
    assert [(change.action, change.object) for change in changes] == [
        ("added", {"name": "a"}),
        ("synced", None),
        ("deleted", {"name": "a"}),
        ("synced", None),
    ]
    assert changes[2].uid == "uid-a"
    following.end()


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([_DENIED], AccessDeniedError),
        ([status(401, "Unauthorized")] * 2, AccessDeniedError),
        ([Answer(status=404, body=b"404 page not found\n")], ObjectMissingError),
        ([listing(version="9"), _DENIED], AccessDeniedError),
    ],
)
def test_refused_from_the_beginning(
    server: Playback, cluster: Cluster, answers: list[Answer], error: type[Exception]
) -> None:
    """What will not pass by waiting is raised."""
    server.expect(_LIST, *answers)
    with pytest.raises(error):
        list(Following(cluster).changes)


def test_refused_later(server: Playback, cluster: Cluster) -> None:
    """Once it has worked a refusal may pass: it is trouble, and over when it is over."""
    server.expect(
        _LIST,
        listing(version="9"),
        _watch(bookmark("10")),
        *[status(401, "Unauthorized")] * 2,
        _DENIED,
        _watch(event("ADDED", rayjob("a", "11")), _OPEN),
    )
    following = Following(cluster)
    assert following.next(2) == [("synced", ""), ("added", "a@11")]
    following.end()
    kinds = [None if one is None else type(one) for one in following.troubles]
    assert kinds == [None, AccessDeniedError, AccessDeniedError, None]


def test_a_half_dead_connection(server: Playback, cluster: Cluster) -> None:
    """A server that says nothing any more, not even the end of the watch, counts as lost."""
    server.expect(
        _LIST,
        listing(version="9"),
        _watch(_OPEN),
        _watch(event("ADDED", rayjob("a", "10")), _OPEN),
    )
    following = Following(cluster, timeout_s=0.2)
    assert following.next(2) == [("synced", ""), ("added", "a@10")]
    following.end()
    assert any(error and "does not answer in time" in str(error) for error in following.troubles)


def test_a_proxy_that_ends_watches(server: Playback, cluster: Cluster) -> None:
    """A watch that ends at once is tried again at growing intervals, not in a tight loop."""
    server.expect(_LIST, listing(version="9"), *[_watch()] * 3, _watch(bookmark("10"), _OPEN))
    following = Following(cluster)
    assert following.next(1) == [("synced", "")]
    timer = threading.Timer(0.5, following.stop.set)
    timer.start()
    assert list(following.changes) == []
    timer.join()
    assert sum("ends every watch" in str(error) for error in following.troubles) == 3


@pytest.mark.parametrize("with_tls", [False, True])
def test_stops_while_it_waits(tmp_path: Path, with_tls: bool) -> None:
    """A silent watch is left within a second, long before anything comes."""
    certificate = make_certificate(tmp_path) if with_tls else None
    with Playback(certificate) as server:
        server.expect(_LIST, listing(version="9"), _watch(_OPEN))
        following = Following(cluster_at(server.url, tmp_path, certificate))
        assert following.next(1) == [("synced", "")]
        timer = threading.Timer(0.1, following.stop.set)
        timer.start()
        started = time.monotonic()
        assert list(following.changes) == []
        assert time.monotonic() - started < 1.0
        timer.join()
        assert following.troubles == [None]
