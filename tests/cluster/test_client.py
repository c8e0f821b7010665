"""Objects of a cluster: what goes over the wire, and what comes of each answer."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from footplate.cluster import (
    ALL_NAMESPACES,
    CLUSTER_QUEUE,
    NODE,
    POD,
    RAYJOB,
    WORKLOAD,
    Cluster,
    Stop,
    kind_of,
)
from footplate.errors import (
    AccessDeniedError,
    ClusterError,
    ClusterUnreachableError,
    ObjectConflictError,
    ObjectMissingError,
    RejectedError,
)
from playback import Answer, Playback, cluster_at, listing, rayjob, status

_JOBS = "/apis/ray.io/v1/namespaces/team/rayjobs"
_JOB = f"{_JOBS}/digits"
_LOG = "/api/v1/namespaces/team/pods/head/log"
_TRACES = Path(__file__).parents[3] / "shared" / "traces"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (RAYJOB.path("team", "digits", "status"), f"{_JOB}/status"),
        (RAYJOB.path(ALL_NAMESPACES), "/apis/ray.io/v1/rayjobs"),
        (POD.path("team"), "/api/v1/namespaces/team/pods"),
        (NODE.path("team", "n1"), "/api/v1/nodes/n1"),
        (CLUSTER_QUEUE.path("", "gpu"), "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/gpu"),
        (POD.path("team", "../x"), "/api/v1/namespaces/team/pods/..%2Fx"),
    ],
)
def test_paths(path: str, wanted: str) -> None:
    """Core and grouped kinds, namespaced or not, are where the API has them; names stay names."""
    assert path == wanted


def test_kind_of_an_object() -> None:
    """An object says what it is, and one of a kind or version that is not dealt with is named."""
    assert kind_of(rayjob("digits", "1")) is RAYJOB
    with pytest.raises(ValueError, match=r"no kind 'Workload' of 'kueue.x-k8s.io/v1alpha1'"):
        kind_of({"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "Workload"})


def test_get_and_find(server: Playback, cluster: Cluster) -> None:
    """An object comes as it is; one that is not there is an error or None, as asked."""
    missing = status(
        404, 'rayjobs.ray.io "digits" not found', details={"name": "digits", "kind": "rayjobs"}
    )
    server.expect(f"GET {_JOB}", Answer(body=rayjob("digits", "7")), missing, missing)
    assert cluster.get(RAYJOB, "digits") == rayjob("digits", "7")
    assert cluster.find(RAYJOB, "digits") is None
    with pytest.raises(ObjectMissingError, match='"digits" not found in namespace team'):
        cluster.get(RAYJOB, "digits")
    assert server.asked[0].headers["Authorization"] == "Bearer secret"


def test_a_namespace_that_is_not_there(server: Playback, cluster: Cluster) -> None:
    """A missing namespace is named, and not said to be missing in itself."""
    details = {"name": "team", "kind": "namespaces"}
    server.expect(f"POST {_JOBS}", status(404, 'namespaces "team" not found', details=details))
    with pytest.raises(ObjectMissingError, match=r'^namespaces "team" not found at the API server'):
        cluster.create(rayjob("digits", ""))


def test_a_kind_that_is_not_installed(server: Playback, cluster: Cluster) -> None:
    """A cluster without Kueue says so, instead of that a workload is missing."""
    server.expect(
        "GET /apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads",
        Answer(status=404, body=b"404 page not found\n"),
    )
    with pytest.raises(ObjectMissingError, match=r"does not know workloads\.kueue") as got:
        cluster.list(WORKLOAD)
    assert got.value.hint == "Is Kueue installed there?"


def test_create(server: Playback, cluster: Cluster) -> None:
    """An object is created where it says, never with fields that the server would drop."""
    server.expect(f"POST {_JOBS}", *[Answer(status=201, body=rayjob("digits", "1"))] * 2)
    obj = rayjob("digits", "")
    assert cluster.create(obj)["metadata"]["resourceVersion"] == "1"
    cluster.create(obj, dry_run=True)
    assert server.queries(f"POST {_JOBS}") == [
        {"fieldValidation": "Strict"},
        {"fieldValidation": "Strict", "dryRun": "All"},
    ]
    assert server.asked[0].body == obj
    assert server.asked[0].headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("answer", [Answer(is_cut=True), status(503, "shutting down")])
def test_create_is_never_repeated(server: Playback, cluster: Cluster, answer: Answer) -> None:
    """Nobody but the caller can tell whether a creation without an answer has happened."""
    server.expect(f"POST {_JOBS}", answer)
    with pytest.raises(ClusterUnreachableError) as got:
        cluster.create(rayjob("digits", ""))
    assert "look for RayJob digits in namespace team" in got.value.hint
    assert str(pickle.loads(pickle.dumps(got.value))) == str(got.value)  # noqa: S301


def test_patch(server: Playback, cluster: Cluster) -> None:
    """A patch is a merge patch, and goes to the subresource that is asked for."""
    server.expect(f"PATCH {_JOB}/status", Answer(body=rayjob("digits", "2")))
    cluster.patch(RAYJOB, "digits", {"status": {"x": None}}, subresource="status", dry_run=True)
    asked = server.asked[0]
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert asked.query == {"fieldValidation": "Strict", "dryRun": "All"}
    assert asked.body == {"status": {"x": None}}


def test_delete(server: Playback, cluster: Cluster) -> None:
    """Deleting is bound to a UID if one is given, and what is gone already is no error."""
    gone = status(404, 'rayjobs.ray.io "digits" not found', details={"name": "digits"})
    server.expect(f"DELETE {_JOB}", Answer(is_cut=True), gone)
    cluster.delete(RAYJOB, "digits", uid="u1", grace_period_s=0)
    assert server.asked[-1].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u1"},
        "gracePeriodSeconds": 0,
    }


def test_delete_by_name_alone_is_not_repeated(server: Playback, cluster: Cluster) -> None:
    """The second try could meet another object of the same name."""
    server.expect(f"DELETE {_JOB}", Answer(is_cut=True))
    with pytest.raises(ClusterUnreachableError):
        cluster.delete(RAYJOB, "digits")


def test_list_goes_through_all_pages(server: Playback, cluster: Cluster) -> None:
    """A long list comes in pages, and its objects say what they are although the list does not."""
    bare = {"metadata": {"name": "b", "uid": "b", "resourceVersion": "2"}}
    server.expect(
        f"GET {_JOBS}",
        listing(rayjob("a", "1"), version="9", next_page="token"),
        listing(bare, version="9"),
    )
    objects = cluster.list(RAYJOB, labels="x=y")
    assert [obj["metadata"]["name"] for obj in objects] == ["a", "b"]
    assert objects[1]["kind"] == "RayJob"
    assert server.queries(f"GET {_JOBS}") == [
        {"limit": "250", "labelSelector": "x=y"},
        {"limit": "250", "labelSelector": "x=y", "continue": "token"},
    ]


def test_list_starts_over(server: Playback, cluster: Cluster) -> None:
    """A list that took longer than the server keeps its place is made again from the start."""
    server.expect(
        f"GET {_JOBS}",
        listing(rayjob("a", "1"), version="9", next_page="token"),
        status(410, "The provided continue parameter is too old", reason="Expired"),
        listing(rayjob("b", "2"), version="12"),
    )
    assert [obj["metadata"]["name"] for obj in cluster.list(RAYJOB)] == ["b"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(is_cut=True),
        Answer(chunks=[b'{"kind": '], is_cut=True),
        status(500, "etcd has no leader"),
        status(429, "too many requests", details={"retryAfterSeconds": 0}),
        status(503, "apiserver is shutting down"),
        Answer(status=502, body=b"<html>bad gateway</html>"),
    ],
)
def test_what_fails_in_passing_is_repeated(
    server: Playback, cluster: Cluster, answer: Answer
) -> None:
    """A lost connection, overload and a restart of the server pass without a word."""
    server.expect(f"GET {_JOB}", answer, answer, Answer(body=rayjob("digits", "7")))
    assert cluster.get(RAYJOB, "digits") == rayjob("digits", "7")


def test_unreachable(tmp_path: Path) -> None:
    """No server at the address: which one, by which context, and why, in one line."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    cluster = cluster_at(f"http://127.0.0.1:{port}", tmp_path)
    with pytest.raises(ClusterUnreachableError) as got:
        cluster.create(rayjob("digits", ""))
    assert got.value.message == (
        f"cannot reach the API server http://127.0.0.1:{port} (context test): connection refused"
    )


def test_another_server_at_the_address(server: Playback, cluster: Cluster) -> None:
    """A page that wants a login is no object."""
    server.expect(f"GET {_JOB}", Answer(body=b"<html>log in</html>"))
    with pytest.raises(ClusterError, match="answers what no API server does"):
        cluster.get(RAYJOB, "digits")


def test_denied(server: Playback, cluster: Cluster) -> None:
    """A missing permission names who, what and where, and the command that shows it."""
    server.expect(
        "GET /api/v1/namespaces/team/pods/head/log",
        status(
            403,
            'pods "head" is forbidden: User "jane" cannot get resource "pods/log" in API group '
            '"" in the namespace "team"',
            reason="Forbidden",
            details={"name": "head", "kind": "pods"},
        ),
    )
    with pytest.raises(AccessDeniedError) as got:
        cluster.log_lines("head")
    assert got.value.message.startswith("jane is not allowed to get pods/log in namespace team")
    assert got.value.hint.endswith(
        "kubectl --context test auth can-i get pods --subresource=log --namespace=team"
    )


def test_denied_by_something_in_between(server: Playback, cluster: Cluster) -> None:
    """A proxy that refuses in its own words is not taken for a judgement on the object."""
    server.expect(f"POST {_JOBS}", Answer(status=403, body=b"blocked by policy"))
    with pytest.raises(AccessDeniedError, match="blocked by policy"):
        cluster.create(rayjob("digits", ""))


def _recorded() -> list[dict[str, Any]]:
    lines = (_TRACES / "k_dryrun_strict.jsonl").read_text(encoding="utf-8").splitlines()
    objects = [json.loads(line)["object"] for line in lines]
    return [obj for obj in objects if obj["http"] >= 400]


@pytest.mark.parametrize("recorded", _recorded(), ids=lambda recorded: recorded["what"])
def test_rejections_of_a_real_cluster(
    server: Playback, cluster: Cluster, recorded: dict[str, Any]
) -> None:
    """Whoever rejects, in whichever form: the object is wrong, and every cause has a line."""
    causes = recorded["causes"] or []
    answer = status(
        recorded["http"],
        recorded["message"],
        reason=recorded["reason"],
        details={"causes": causes} if causes else {},
    )
    server.expect(f"POST {_JOBS}", answer)
    with pytest.raises(RejectedError) as got:
        cluster.create(rayjob("digits", ""))
    first, *lines = got.value.message.splitlines()
    assert first.startswith("cannot create RayJob digits in namespace team: it is rejected")
    for cause in causes:
        assert any(line.endswith(cause["message"]) for line in lines)
    if "unknown field" in recorded["message"]:
        assert len(lines) == recorded["message"].count("unknown field")
    if "admission webhook" in recorded["message"]:
        assert first.endswith(".kb.io)")


@pytest.mark.parametrize(
    "message",
    [
        'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
        'pods "x" is forbidden: exceeded quota: gpus, requested: 8, used: 0, limited: 4',
        'admission webhook "v.example.com" denied the request: User "x" cannot use resource "y"',
    ],
)
def test_admission_is_no_permission(server: Playback, cluster: Cluster, message: str) -> None:
    """Admission answers 403 like a missing permission, but it is the object that must change."""
    server.expect(f"POST {_JOBS}", status(403, message, reason="Forbidden"))
    with pytest.raises(RejectedError):
        cluster.create(rayjob("digits", ""))


def test_conflict(server: Playback, cluster: Cluster) -> None:
    """What is there already is told apart from what is wrong."""
    server.expect(
        f"POST {_JOBS}",
        status(409, 'rayjobs.ray.io "digits" already exists', reason="AlreadyExists"),
    )
    with pytest.raises(ObjectConflictError, match="already exists"):
        cluster.create(rayjob("digits", ""))


def test_log_lines(server: Playback, cluster: Cluster) -> None:
    """Lines come whole however they arrive, and bytes that are no text do not end the log."""
    chunks = [b"first\nsec", b"ond \xff\n", "dritte äö\n".encode(), b"last"]
    server.expect(f"GET {_LOG}", Answer(chunks=chunks))
    lines = cluster.log_lines("head", container="ray-head", tail=10, since_s=5)
    assert list(lines) == ["first", "second �", "dritte äö", "last"]
    wanted = {"container": "ray-head", "tailLines": "10", "sinceSeconds": "5"}
    assert server.queries(f"GET {_LOG}") == [wanted]


def test_log_that_is_not_there_yet(server: Playback, cluster: Cluster) -> None:
    """A container that waits to start has no log; nothing is wrong with anything."""
    text = 'container "ray-head" in pod "head" is waiting to start: ContainerCreating'
    server.expect(f"GET {_LOG}", status(400, text, reason="BadRequest"))
    with pytest.raises(ObjectMissingError, match="waiting to start"):
        cluster.log_lines("head")


def test_log_that_breaks_off(server: Playback, cluster: Cluster) -> None:
    """A lost connection is not the end of the log."""
    server.expect(f"GET {_LOG}", Answer(chunks=[b"one\ntwo\n"], is_cut=True))
    lines = cluster.log_lines("head", follow=True)
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(ClusterUnreachableError, match="cannot reach the API server"):
        next(lines)


def test_a_silent_log_can_be_left(server: Playback, cluster: Cluster) -> None:
    """Whoever waits for a container that prints nothing can be told to stop."""
    server.expect(f"GET {_LOG}", Answer(chunks=[b"one\n", threading.Event()]))
    stop = Stop()
    lines = cluster.log_lines("head", follow=True, stop=stop)
    assert next(lines) == "one"
    timer = threading.Timer(0.1, stop.set)
    timer.start()
    assert list(lines) == []
    timer.join()


@pytest.mark.parametrize("ahead_s", [0, 180, -180])
def test_the_clock_of_the_cluster(server: Playback, cluster: Cluster, ahead_s: int) -> None:
    """How far it is from this machine's shows in every answer; whole seconds are no difference."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead_s), usegmt=True)
    server.expect(f"GET {_JOB}", Answer(body=rayjob("digits", "7"), headers={"Date": date}))
    assert cluster.clock_offset_s == 0.0
    cluster.get(RAYJOB, "digits")
    assert cluster.clock_offset_s == pytest.approx(ahead_s, abs=2.0 if ahead_s else 0.0)


def test_an_answer_without_a_clock(server: Playback, cluster: Cluster) -> None:
    """A proxy that says no time, or nonsense, changes nothing."""
    server.expect(f"GET {_JOB}", Answer(body=rayjob("digits", "7"), headers={"Date": "soon"}))
    cluster.get(RAYJOB, "digits")
    assert cluster.clock_offset_s == 0.0


def test_a_list_keeps_what_is_asked_for(server: Playback, cluster: Cluster) -> None:
    """Of a long list only what is needed is ever held."""
    server.expect(
        f"GET {_JOBS}",
        listing(rayjob("a", "1"), version="9", next_page="token"),
        listing(rayjob("b", "2"), version="9"),
    )
    found = cluster.list(RAYJOB, reduce=lambda thing: {"name": thing["metadata"]["name"]})
    assert found == [{"name": "a"}, {"name": "b"}]
