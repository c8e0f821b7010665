"""What is kept of the objects of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from footplate.cluster import Cluster
from footplate.errors import ClusterError
from footplate.runs.looking import read_identity, reduced
from footplate.runs.state import RunState, Snapshot, state_of
from footplate.store import RunRecord, to_json
from playback import Answer, Playback, status

_IDENTITY = "GET /api/v1/namespaces/team/configmaps/digits-footplate"
_TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
_NOW = 2e9


def _state(known: dict[str, dict[str, Any]], rayjob: dict[str, Any]) -> RunState:
    snapshot = Snapshot(
        rayjob=rayjob,
        workload=known.get("Workload"),
        raycluster=known.get("RayCluster"),
        pods=(known["Pod"],) if "Pod" in known else (),
    )
    return state_of(snapshot, now=_NOW)


@pytest.mark.parametrize("trace", sorted(_TRACES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_reduced_object_says_the_same(trace: Path) -> None:
    """Of any object that a cluster has ever told, what is left out changes no state."""
    whole: dict[str, dict[str, Any]] = {}
    kept: dict[str, dict[str, Any]] = {}
    for line in trace.read_text(encoding="utf-8").splitlines():
        thing = json.loads(line)["object"]
        kind = json.loads(line)["kind"]
        if kind not in ("RayJob", "Workload", "RayCluster", "Pod"):
            continue
        if not isinstance(thing.get("spec"), dict):
            thing["spec"] = {}
        whole[kind], kept[kind] = {"kind": kind, **thing}, reduced({"kind": kind, **thing})
        if "RayJob" in whole:
            assert _state(whole, whole["RayJob"]) == _state(kept, kept["RayJob"])


def test_a_reduced_object_is_small() -> None:
    """The template of the pods, which is most of a RayJob, is not kept, nor who wrote what."""
    groups = [{"groupName": "workers", "replicas": 2, "numOfHosts": 4, "template": {"spec": {}}}]
    rayjob = {
        "kind": "RayJob",
        "metadata": {"name": "digits", "managedFields": [{}]},
        "spec": {"entrypoint": "python", "rayClusterSpec": {"workerGroupSpecs": groups}},
        "status": {"rayClusterStatus": {"head": {}, "readyWorkerReplicas": 2}},
    }
    group = {"groupName": "workers", "replicas": 2, "numOfHosts": 4}
    assert reduced(rayjob) == {
        "kind": "RayJob",
        "metadata": {"name": "digits"},
        "spec": {"rayClusterSpec": {"workerGroupSpecs": [group]}},
        "status": {"rayClusterStatus": {"readyWorkerReplicas": 2}},
    }


def test_a_reduced_object_keeps_its_time_limits() -> None:
    """How long a run was allowed to take is said when it has taken too long."""
    limits = {"activeDeadlineSeconds": 3600, "preRunningDeadlineSeconds": 60}
    rayjob = {
        "kind": "RayJob",
        "metadata": {"name": "digits"},
        "spec": limits,
        "status": {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"},
    }
    state = state_of(Snapshot(rayjob=reduced(rayjob)), now=_NOW)
    assert state.reason == "ran longer than 3600 s (activeDeadlineSeconds)"


def test_the_identity_of_a_run_is_that_of_its_uid(server: Playback, cluster: Cluster) -> None:
    """One that is missing, or was left by an earlier run of the name, is none."""
    record = RunRecord(uid="uid", namespace="team", name="digits", created=1.0, spec={})
    there = Answer(body={"data": {"job.json": to_json(record).decode()}})
    server.expect(_IDENTITY, there, there, status(404, "not found"))
    assert read_identity(cluster, "digits", "team", "uid") == record
    assert read_identity(cluster, "digits", "team", "another") is None
    assert read_identity(cluster, "digits", "team", "uid") is None


@pytest.mark.parametrize("data", [None, {}, {"job.json": "{"}, {"job.json": '{"uid": 5}'}])
def test_a_broken_identity_is_an_error_of_ours(
    server: Playback, cluster: Cluster, data: dict[str, str] | None
) -> None:
    """Whoever looks at many runs can go on with the others."""
    server.expect(_IDENTITY, Answer(body={"data": data}))
    with pytest.raises(ClusterError, match="digits-footplate in namespace team is no identity"):
        read_identity(cluster, "digits", "team", "uid")
