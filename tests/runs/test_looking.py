"""What is kept of the objects of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from footplate.runs.looking import reduced
from footplate.runs.state import RunState, Snapshot, state_of

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
