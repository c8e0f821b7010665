"""What the guard does about pods that cannot end and jobs that KubeRay refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from footplate.cluster import POD, WORKLOAD
from footplate.runs.guard.act import Act, Deed, Deletion
from footplate.runs.guard.rules import MARGIN_S, acts, outage
from footplate.runs.guard.world import Reference, World, reduced

_TRACES = Path(__file__).parents[3] / "shared" / "traces"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()


def _time(seconds_ago: float) -> str:
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _rayjob(status: str = "Running", cluster: str = "digits-abcde", **metadata: Any) -> Any:
    return {
        "metadata": {"name": "digits", "namespace": "team", "uid": "u-job", **metadata},
        "spec": {},
        "status": {"jobDeploymentStatus": status, "rayClusterName": cluster, "message": "too long"},
    }


def _pod(ended: float | None = 60, *, cluster: str = "digits-abcde", node: str = "n-1") -> Any:
    """A worker whose grace period was over so many seconds ago."""
    deletion = {} if ended is None else {"deletionTimestamp": _time(ended)}
    return {
        "metadata": {
            "name": "digits-abcde-workers-worker-x",
            "namespace": "team",
            "uid": "u-pod",
            "labels": {
                "footplate.dev/name": "digits",
                "ray.io/cluster": cluster,
                "ray.io/node-type": "worker",
            },
            **deletion,
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": "Running"},
    }


def _node(name: str, lost: float | None = None, status: str = "Unknown") -> Any:
    """A node that has not been ready for so many seconds; None for a good one."""
    ready = (
        {"status": "True", "lastTransitionTime": _time(3600)}
        if lost is None
        else {"status": status, "lastTransitionTime": _time(lost)}
    )
    conditions = [{"type": "MemoryPressure", "status": "Unknown"}, {"type": "Ready", **ready}]
    return {"metadata": {"name": name, "uid": f"u-{name}"}, "status": {"conditions": conditions}}


def _workload(*true: str, **metadata: Any) -> Any:
    conditions = [{"type": kind, "status": "True", "reason": kind} for kind in true]
    labels = {"kueue.x-k8s.io/job-uid": "u-job"}
    return {
        "metadata": {
            "name": "rayjob-digits-1",
            "namespace": "team",
            "uid": "u-wl",
            "labels": labels,
            **metadata,
        },
        "status": {"conditions": conditions},
    }


def _acts(**objects: list[Any]) -> list[Act]:
    kept: Any = {kind: [reduced(one) for one in found] for kind, found in objects.items()}
    return acts(World(**kept), NOW)


NODES = [_node("n-0"), _node("n-1", 120), _node("n-2")]


@pytest.mark.parametrize("status", ["Initializing", "Running"])
@pytest.mark.parametrize("ready", ["Unknown", "False"])
def test_a_pod_that_its_node_cannot_end_is_deleted_by_force(status: str, ready: str) -> None:
    """KubeRay makes no other pod while this one is there, and it would be there for ever."""
    nodes = [_node("n-0"), _node("n-1", 120, ready), _node("n-2")]
    (act,) = _acts(rayjobs=[_rayjob(status)], pods=[_pod()], nodes=nodes)
    pod = Reference(POD, "team", "digits-abcde-workers-worker-x", "u-pod")
    assert act.deed is Deed.REPLACE_POD
    assert act.steps == (Deletion(pod, grace_period_s=0),)
    assert act.rayjob.name == "digits"
    assert f"n-1 has not been ready since {_time(120)}" in act.sentence


def test_a_pod_of_a_node_that_is_gone_is_deleted_by_force() -> None:
    """A cloud takes the object of the node away with the machine."""
    (act,) = _acts(rayjobs=[_rayjob()], pods=[_pod(node="n-9")], nodes=NODES)
    assert "its node n-9 is gone" in act.sentence


LEFT_ALONE = {
    "not being deleted": ([_rayjob()], [_pod(None)], NODES),
    "still in its grace period": ([_rayjob()], [_pod(-20)], NODES),
    "only just over it": ([_rayjob()], [_pod(MARGIN_S - 1)], NODES),
    "on a good node": ([_rayjob()], [_pod(node="n-0")], NODES),
    "on a node only just lost": ([_rayjob()], [_pod()], [_node("n-1", MARGIN_S - 1)]),
    "on no node": ([_rayjob()], [_pod(node="")], NODES),
    "of no job": ([], [_pod()], NODES),
    "of an earlier cluster": ([_rayjob()], [_pod(cluster="digits-older")], NODES),
    "of a job that has ended": ([_rayjob("Complete")], [_pod()], NODES),
    "of a job that is suspended": ([_rayjob("Suspended", "")], [_pod()], NODES),
    "of a job that is deleted": ([_rayjob(deletionTimestamp=_time(1))], [_pod()], NODES),
    "of a job that is cancelled": (
        [_rayjob(annotations={"footplate.dev/cancelled": "x"})],
        [_pod()],
        NODES,
    ),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_other_pods_are_left_alone(case: str) -> None:
    """Force is only for what nothing else can end, and only where a replacement is to come."""
    rayjobs, pods, nodes = LEFT_ALONE[case]
    assert _acts(rayjobs=rayjobs, pods=pods, nodes=nodes) == []


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        (0, None),
        (2, None),
        (3, "3 of 4 nodes are not ready at once"),
        (4, "4 of 4 nodes are not ready at once"),
    ],
)
def test_most_nodes_lost_at_once_is_an_outage(lost: int, expected: str | None) -> None:
    """A control plane that is cut off from its nodes must not lead to a massacre."""
    nodes = [_node(f"n-{i}", 5 if i < lost else None) for i in range(4)]
    assert outage(World(nodes=[reduced(node) for node in nodes])) == expected


def test_no_nodes_is_an_outage() -> None:
    """Seeing none of them says nothing about the pods."""
    assert outage(World()) is not None


def test_a_node_that_says_not_everything_is_read_as_far_as_it_goes() -> None:
    """Since when it is lost is not known, so none of its pods is deleted; lost it is."""
    node = _node("n-1", 120)
    del node["status"]["conditions"][1]["lastTransitionTime"]
    assert _acts(rayjobs=[_rayjob()], pods=[_pod()], nodes=[node]) == []
    assert outage(World(nodes=[reduced(node)])) is not None
    node["status"] = {"conditions": None, "message": None}
    assert outage(World(nodes=[reduced(node)])) is None


REFUSED = [_rayjob("ValidationFailed", "")]


@pytest.mark.parametrize("true", [(), ("QuotaReserved", "Admitted")])
def test_a_refused_job_gives_its_quota_back(true: tuple[str, ...]) -> None:
    """Admitted or not yet: Kueue would hold it for ever, for a job that never runs."""
    (act,) = _acts(rayjobs=REFUSED, workloads=[_workload(*true)])
    assert act.deed is Deed.RELEASE_QUOTA
    assert act.steps == (Deletion(Reference(WORKLOAD, "team", "rayjob-digits-1", "u-wl")),)
    assert "too long" in act.sentence


KEPT = {
    "without Kueue": (REFUSED, [], []),
    "finished": (REFUSED, [_workload("QuotaReserved", "Finished")], []),
    "deleted already": (REFUSED, [_workload(deletionTimestamp=_time(1))], []),
    "of another job": (REFUSED, [_workload(labels={"kueue.x-k8s.io/job-uid": "other"})], []),
    "of another namespace": (REFUSED, [_workload(namespace="foreign")], []),
    "of a job that runs": ([_rayjob()], [_workload("QuotaReserved")], []),
    "of a job that trains on": (
        [_rayjob("ValidationFailed", "digits-abcde")],
        [_workload("QuotaReserved")],
        [],
    ),
    "of a job with pods": (REFUSED, [_workload("QuotaReserved")], [_pod(None)]),
}


@pytest.mark.parametrize("case", KEPT)
def test_other_workloads_stay(case: str) -> None:
    """Quota that is in use, or free already, is nobody's to release."""
    rayjobs, workloads, pods = KEPT[case]
    assert _acts(rayjobs=rayjobs, workloads=workloads, pods=pods, nodes=NODES) == []


# What real clusters did, played again.


def _replayed(trace: str) -> Iterator[tuple[float, World, float]]:
    """The world after each recorded event and every half a second between: t, world, now."""
    text = (_TRACES / f"{trace}.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    rayjob = next(line for line in lines if line["kind"] == "RayJob")
    start = _epoch(rayjob["object"]["metadata"]["creationTimestamp"]) - rayjob["t"]
    things: dict[tuple[str, str], dict[str, Any]] = {}
    nodes = {f"node-{i}": _node(f"node-{i}") for i in range(2)}
    t = 0.0
    for line in lines:
        while t < line["t"]:
            yield t, _world(things, nodes), start + t
            t += 0.5
        if line["kind"] in ("RayJob", "Pod", "Workload"):
            _apply(things, line)
        elif line["kind"] == "Note":
            _note(nodes, line["object"].get("message", ""), start + line["t"])
        yield line["t"], _world(things, nodes), start + line["t"]


def _apply(things: dict[tuple[str, str], dict[str, Any]], line: dict[str, Any]) -> None:
    thing = line["object"]
    key = line["kind"], thing["metadata"]["name"]
    # What stays the same was left out where a file would have been too big.
    before = things.get(key, {"metadata": {"namespace": "x", "uid": key[1]}, "spec": {}})
    kept = {name: before["metadata"].get(name) for name in ("namespace", "uid", "labels")}
    thing["metadata"] = kept | thing["metadata"]
    if not isinstance(thing.get("spec", {}), dict):
        thing["spec"] = before["spec"]
    if line["type"] == "DELETED":
        del things[key]
    else:
        things[key] = thing


def _note(nodes: dict[str, Any], message: str, now: float) -> None:
    """Nodes were not recorded as objects, only as what had been done to them."""
    if message.startswith("node-1 lost") or '"Ready", "Unknown"' in message:
        nodes["node-1"] = _node("node-1", NOW - now)
    elif '"Ready", "True"' in message:
        nodes["node-1"] = _node("node-1")


def _world(things: dict[tuple[str, str], dict[str, Any]], nodes: dict[str, Any]) -> World:
    def of(kind: str) -> list[Any]:
        return [reduced(thing) for (its, _), thing in things.items() if its == kind]

    return World(
        rayjobs=of("RayJob"),
        workloads=of("Workload"),
        pods=of("Pod"),
        nodes=[reduced(node) for node in nodes.values()],
    )


def _epoch(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _first_times(trace: str) -> dict[tuple[Deed, str], float]:
    """When each act was wanted for the first time."""
    found: dict[tuple[Deed, str], float] = {}
    for t, world, now in _replayed(trace):
        for act in acts(world, now):
            found.setdefault((act.deed, act.target.name), t)
    return found


def test_a_recorded_node_loss() -> None:
    """One pod, 40 s after it was told to go: 30 s of grace and the margin; nothing else ever."""
    found = _first_times("g4_node_loss")
    assert list(found) == [(Deed.REPLACE_POD, "train-8ggpj-workers-worker-ld9cj")]
    (t,) = found.values()
    assert t == pytest.approx(185.5 + 30 + MARGIN_S, abs=1.5)


def test_a_recorded_node_loss_that_a_person_cured() -> None:
    """Who was faster than the guard leaves it nothing to do, and the new pod alone."""
    assert _first_times("g4c_node_loss_force_delete") == {}


def test_recorded_refusals() -> None:
    """Each job that KubeRay refused under Kueue, and none of those that hung otherwise."""
    found = _first_times("d_long_name")
    assert {deed for deed, _ in found} == {Deed.RELEASE_QUOTA}
    assert {name.removeprefix("rayjob-").rpartition("-")[0] for _, name in found} == {
        "1abc",
        "minmax",
        "negback",
        "nocont",
        "very-long-experiment-name-with-too-many-words-aa",
    }


@pytest.mark.parametrize(
    "trace",
    ["a_identity_configmap", "c_preemption", "g5_head_graceful_backoff0", "o_stop_ways"],
)
def test_recorded_everyday_life(trace: str) -> None:
    """Preemption, a deleted head, pauses and deletions are the operators' own business."""
    assert _first_times(trace) == {}
