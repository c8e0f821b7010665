"""Where many runs stand, by the objects that belong to each."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import replace
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from footplate.cluster import Cluster
from footplate.runs.looking import reduced, selections, selections_of_many
from footplate.runs.state import Phase
from footplate.runs.watching import Watching, look, states_now
from footplate.store import (
    AttemptResult,
    Claim,
    Failure,
    RunPaths,
    RunRecord,
    Store,
    claim_next,
    to_json,
)
from playback import Answer, Playback, event, listing, status

Object = dict[str, Any]
_JOBS = "GET /apis/ray.io/v1/namespaces/team/rayjobs"
_CLUSTERS = "GET /apis/ray.io/v1/namespaces/team/rayclusters"
_WORKLOADS = "GET /apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
_PODS = "GET /api/v1/namespaces/team/pods"
_IDENTITY = "GET /api/v1/namespaces/team/configmaps/digits-footplate"


def _rayjob(name: str, namespace: str, uid: str) -> Object:
    group = {"groupName": "workers", "replicas": 2, "template": {"spec": {"containers": []}}}
    return {
        "kind": "RayJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": "2026-11-29T14:00:00Z",
            "managedFields": [{"manager": "footplate"}],
        },
        "spec": {
            "suspend": False,
            "entrypoint": "python -m footplate.train",
            "rayClusterSpec": {"workerGroupSpecs": [group]},
        },
        "status": {
            "jobDeploymentStatus": "Initializing",
            "rayClusterName": f"{name}-abcde",
            "startTime": "2026-11-29T14:00:05Z",
        },
    }


def _pod(number: int, name: str, namespace: str) -> Object:
    ready = {"type": "Ready", "status": "True"}
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{number}",
            "namespace": namespace,
            "uid": f"pod-{namespace}-{name}-{number}",
            "labels": {
                "footplate.dev/name": name,
                "ray.io/cluster": f"{name}-abcde",
                "ray.io/node-type": "worker",
            },
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "conditions": [ready]},
    }


def _raycluster(name: str, namespace: str, owner: str) -> Object:
    return {
        "kind": "RayCluster",
        "metadata": {
            "name": f"{name}-abcde",
            "namespace": namespace,
            "uid": f"cluster-{owner}",
            "labels": {"ray.io/originated-from-cr-name": name},
            "ownerReferences": [{"kind": "RayJob", "name": name, "uid": owner}],
        },
        "spec": {},
        "status": {"state": ""},
    }


def test_runs_of_one_name_in_two_namespaces_are_kept_apart() -> None:
    """The workers of one are not counted for the other."""
    runs = [_rayjob("digits", "a", "uid-a"), _rayjob("digits", "b", "uid-b")]
    things = [
        _raycluster("digits", "a", "uid-a"),
        _raycluster("digits", "b", "uid-b"),
        _pod(1, "digits", "a"),
        _pod(2, "digits", "a"),
        _pod(1, "digits", "b"),
    ]
    states = states_now(runs, things, now=1_795_960_830.0)
    assert [(state.namespace, state.workers_ready) for state in states] == [("a", 2), ("b", 1)]


def test_little_is_kept_of_a_rayjob() -> None:
    """Thousands of runs fit in memory, and where they stand is the same."""
    rayjob = _rayjob("digits", "team", "uid")
    kept = reduced(rayjob)
    assert "managedFields" not in kept["metadata"]
    assert kept["spec"]["rayClusterSpec"] == {
        "workerGroupSpecs": [{"groupName": "workers", "replicas": 2}]
    }
    now = 1_795_960_830.0
    assert states_now([kept], [], now=now) == states_now([rayjob], [], now=now)


def test_one_run_is_selected_by_the_server() -> None:
    """Nothing of other runs is sent to who watches one."""
    by_kind = {each.kind.kind: each for each in selections("digits", "team", "uid")}
    assert by_kind["RayJob"].fields == "metadata.name=digits"
    assert by_kind["Workload"].labels == "kueue.x-k8s.io/job-uid=uid"
    assert by_kind["RayCluster"].labels == "ray.io/originated-from-cr-name=digits"
    assert by_kind["Pod"].labels == "footplate.dev/name=digits"


def test_many_runs_are_four_selections_whatever_the_labels() -> None:
    """The user's labels choose RayJobs, and only those that are ours."""
    rayjobs, *others = selections_of_many("team", "owner=ada")
    assert rayjobs.labels == "footplate.dev/name,owner=ada"
    assert [each.kind.kind for each in others] == ["Workload", "RayCluster", "Pod"]
    assert not any("owner" in each.labels for each in others)


def _identity(folder: Path, uid: str = "uid-a") -> Answer:
    spec = {"name": "digits", "command": ["true"], "store": {"uri": str(folder)}}
    record = RunRecord(uid=uid, namespace="team", name="digits", created=1.0, spec=spec)
    return Answer(body={"data": {"job.json": to_json(record).decode()}})


def _ended(folder: Path, uid: str = "uid-a") -> None:
    """What the driver leaves behind when the training function fails."""
    run, store = RunPaths(namespace="team", name="digits", uid=uid), Store(str(folder))
    driver = "driver"
    claim = Claim(attempt=1, token=driver, host="h", pid=1, claimed=1.0, spec={})
    claim_next(store, run, claim)
    failure = Failure(time=2e9, error="E", category="user_code", message="no luck", exit_code=10)
    result = AttemptResult(status="failed", started=1, ended=2e9, steps=7, failure=failure)
    store.put(run.attempt(1).result, to_json(result))


def _failed(rayjob: Object) -> Object:
    status = rayjob["status"] | {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}
    return _versioned(rayjob, "20") | {"status": status}


def _versioned(thing: Object, version: str = "7") -> Object:
    return thing | {"metadata": thing["metadata"] | {"resourceVersion": version}}


def _stream(*events: bytes | threading.Event) -> Answer:
    return Answer(chunks=[*events, threading.Event()])


def test_a_look_needs_nothing_but_rayjobs(server: Playback, cluster: Cluster) -> None:
    """Without Kueue RBAC still refuses Workloads; pods and ConfigMaps may be refused as well."""
    server.expect(_WORKLOADS, status(403, "workloads is forbidden"))
    server.expect(_CLUSTERS, status(403, "rayclusters is forbidden"))
    server.expect(_PODS, status(403, "pods is forbidden"))
    server.expect(_IDENTITY, status(403, "configmaps is forbidden"))
    rayjob = _rayjob("digits", "team", "uid-a")
    rayjob["status"]["rayClusterStatus"] = {"readyWorkerReplicas": 1}
    state = look(cluster, rayjob, now=time.time())
    assert (state.phase, state.workers_ready, state.workers_wanted) == (Phase.STARTING, 1, 2)


def test_a_look_goes_by_the_clock_of_the_cluster(server: Playback, cluster: Cluster) -> None:
    """A laptop whose clock is three minutes ahead does not take a fresh submission for broken."""
    rayjob = _rayjob("digits", "team", "uid-a")
    del rayjob["status"]
    submitted = datetime.fromisoformat(rayjob["metadata"]["creationTimestamp"])
    date = {"Date": format_datetime(submitted, usegmt=True)}
    for request in (_WORKLOADS, _CLUSTERS, _PODS):
        server.expect(request, replace(listing(version="9"), headers=date))
    server.expect(_IDENTITY, replace(status(404, "not found"), headers=date))
    state = look(cluster, rayjob, now=time.time())
    assert state.reason == "being submitted: its ConfigMap is not there yet"


def test_a_broken_identity_does_not_hide_the_run(server: Playback, cluster: Cluster) -> None:
    """What the cluster says is shown, whatever stands in the ConfigMap."""
    for request in (_WORKLOADS, _CLUSTERS, _PODS):
        server.expect(request, listing(version="9"))
    server.expect(_IDENTITY, Answer(body={"data": {"job.json": "{"}}))
    state = look(cluster, _rayjob("digits", "team", "uid-a"), now=time.time())
    assert state.phase is Phase.STARTING


def test_following_one_run_to_its_end(server: Playback, cluster: Cluster, tmp_path: Path) -> None:
    """One list and one watch a kind; how it ended is what its store says, never less."""
    rayjob = _versioned(_rayjob("digits", "team", "uid-a"))
    ends = threading.Event()
    server.expect(_IDENTITY, _identity(tmp_path))
    server.expect(
        _JOBS,
        listing(rayjob, version="9"),
        _stream(ends, event("MODIFIED", _failed(rayjob))),
    )
    for request in (_WORKLOADS, _CLUSTERS, _PODS):
        server.expect(request, listing(version="9"), _stream())
    with Watching.one(cluster, rayjob) as watching:
        states = (states["uid-a"] for states in watching.states(30))
        assert next(states).phase is Phase.STARTING
        _ended(tmp_path)
        ends.set()
        last = next(state for state in states if state.is_terminal)
    assert (last.exit_code, last.step) == (10, 7)


def test_following_without_what_may_not_be_read(
    server: Playback, cluster: Cluster, tmp_path: Path
) -> None:
    """Kinds that are refused, or are not installed, are done without from then on."""
    rayjob = _versioned(_rayjob("digits", "team", "uid-a"))
    rayjob["status"]["rayClusterStatus"] = {"readyWorkerReplicas": 1}
    server.expect(_IDENTITY, _identity(tmp_path))
    others_follow = threading.Event()
    for request, refusal in (
        (_WORKLOADS, Answer(status=404, body=b"404 page not found\n")),
        (_PODS, status(403, "pods is forbidden")),
    ):
        said = (
            refusal.body if isinstance(refusal.body, bytes) else json.dumps(refusal.body).encode()
        )
        server.expect(request, replace(refusal, chunks=[others_follow, said]), refusal)
    jobs, none = listing(rayjob, version="9"), listing(version="9")
    server.expect(_JOBS, jobs, _stream(), jobs, _stream())
    # Once more than the others: to see whether it may be read.
    server.expect(_CLUSTERS, none, _stream(), none, none, _stream())

    def refuse() -> None:
        while len([asked for asked in server.asked if "watch" in asked.query]) < 2:
            time.sleep(0.01)
        others_follow.set()

    refusing = threading.Thread(target=refuse)
    refusing.start()
    with Watching.one(cluster, rayjob) as watching:
        state = next(watching.states(30))["uid-a"]
    refusing.join()
    assert (state.phase, state.workers_ready) == (Phase.STARTING, 1)


def test_many_runs_that_had_ended_are_shown_with_their_last_words(
    server: Playback, cluster: Cluster, tmp_path: Path
) -> None:
    """One of them has a store that keeps silent, which is waited for once and not for long."""
    runs = [_failed(_rayjob(name, "team", f"uid-{name}")) for name in ("digits", "silent")]
    server.expect(_JOBS, listing(*runs, version="9"), _stream())
    for request in (_WORKLOADS, _CLUSTERS, _PODS):
        server.expect(request, listing(version="9"), _stream())
    server.expect(_IDENTITY, _identity(tmp_path, "uid-digits"))
    _ended(tmp_path, "uid-digits")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        spec = {
            "store": {
                "uri": "s3://bucket/runs",
                "endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}",
            }
        }
        record = RunRecord(
            uid="uid-silent", namespace="team", name="silent", created=1.0, spec=spec
        )
        body = {"data": {"job.json": to_json(record).decode()}}
        server.expect(_IDENTITY.replace("digits", "silent"), Answer(body=body))
        began = time.monotonic()
        with Watching(cluster, selections_of_many("team")) as watching:
            states = next(watching.states(30))
        assert time.monotonic() - began < 8
    assert states["uid-digits"].exit_code == 10
    assert states["uid-silent"].phase is Phase.FAILED


def test_runs_in_a_queue_cost_no_request_each(server: Playback, cluster: Cluster) -> None:
    """Their stores hold nothing yet, so nobody asks who they are."""
    runs = []
    for number in range(30):
        rayjob = _versioned(_rayjob(f"run-{number}", "team", f"uid-{number}"))
        rayjob["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
        runs.append(rayjob | {"spec": rayjob["spec"] | {"suspend": True}, "status": {}})
    server.expect(_JOBS, listing(*runs, version="9"), _stream())
    for request in (_WORKLOADS, _CLUSTERS, _PODS):
        server.expect(request, listing(version="9"), _stream())
    with Watching(cluster, selections_of_many("team")) as watching:
        states = next(watching.states(30))
    assert {state.phase for state in states.values()} == {Phase.QUEUED}
