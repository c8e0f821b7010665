"""What is asked of a cluster to explain where runs stand, and how often."""

from __future__ import annotations

from typing import Any

from footplate.cluster import Backoff, Cluster
from footplate.runs.reasons import Reasons
from footplate.runs.state import Phase, Snapshot, state_of
from playback import Answer, Playback, listing, status

_EVENTS = "GET /api/v1/namespaces/team/events"
_NODES = "GET /api/v1/nodes"
_PENDING = (
    "GET /apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/q/pendingworkloads"
)
_NOW = 1_795_960_830.0


def _rayjob(deployment: str, **more: Any) -> dict[str, Any]:
    status = {"jobDeploymentStatus": deployment, "rayClusterName": "digits-abcde", **more}
    metadata = {
        "name": "digits",
        "namespace": "team",
        "uid": "uid",
        "creationTimestamp": "2026-11-29T14:00:00Z",
    }
    return {"metadata": metadata, "spec": {"preRunningDeadlineSeconds": 60}, "status": status}


def _pod(name: str, *, is_ready: bool, node: str = "node-1") -> dict[str, Any]:
    labels = {"ray.io/cluster": "digits-abcde", "ray.io/node-type": "worker"}
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {"nodeName": node},
        "status": {"phase": "Running" if is_ready else "Pending", "conditions": [ready]},
    }


def _event(kind: str, name: str, reason: str, message: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}.{reason}", "managedFields": [{}]},
        "involvedObject": {"kind": kind, "name": name, "uid": f"uid-{name}"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-11-29T14:00:10Z",
        **more,
    }


def _node(name: str, is_ready: bool) -> dict[str, Any]:
    ready = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": "2026-11-29T14:00:00Z"}
    return {"metadata": {"name": name}, "status": {"conditions": [ready], "images": [{}]}}


def test_a_run_that_does_well_costs_nothing(server: Playback, cluster: Cluster) -> None:
    """Nothing is asked while all pods are ready."""
    pods = [_pod("digits-abcde-worker-1", is_ready=True)]
    snapshot = Snapshot(rayjob=_rayjob("Running", jobStatus="RUNNING"), pods=pods)
    reasons = Reasons(cluster)
    assert reasons.events(snapshot, Phase.TRAINING) == ()
    assert reasons.nodes(snapshot, Phase.TRAINING) == []
    assert reasons.ahead(snapshot, Phase.TRAINING) is None
    assert server.asked == []


def test_one_request_tells_of_all_that_belongs_to_a_run(server: Playback, cluster: Cluster) -> None:
    """Events of pods, also of those that are gone, of the RayCluster and of the Workload."""
    own = [
        _event("Pod", "digits-abcde-worker-1", "FailedMount", "no such volume"),
        _event("Pod", "digits-abcde-worker-0", "Failed", "an older pod"),
        _event("RayCluster", "digits-abcde", "FailedToCreateHeadPod", "quota"),
        _event("Workload", "rayjob-digits", "Pending", "Pending the preemption", type="Normal"),
    ]
    others = [_event("Pod", "digits-abcdef-worker-1", "Failed", "of another run")]
    server.expect(_EVENTS, listing(*own, *others, version="9"))
    snapshot = Snapshot(
        rayjob=_rayjob("Initializing"),
        raycluster={"metadata": {"name": "digits-abcde", "uid": "uid-digits-abcde"}},
        workload={"metadata": {"name": "rayjob-digits", "uid": "uid-rayjob-digits"}},
        pods=[_pod("digits-abcde-worker-1", is_ready=False)],
    )
    reasons = Reasons(cluster)
    for _ in range(3):
        found = reasons.events(snapshot, Phase.STARTING)
        assert [event["message"] for event in found] == [event["message"] for event in own]
    assert all("metadata" not in event for event in found)


def test_a_trouble_that_was_overcome_is_not_shown(server: Playback, cluster: Cluster) -> None:
    """Events of what goes well are asked for, too: after them a warning is old."""
    name = "digits-abcde-worker-1"
    pulled = {"type": "Normal", "lastTimestamp": "2026-11-29T14:00:20Z"}
    failed = _event("Pod", name, "FailedMount", "no such volume")
    server.expect(
        _EVENTS,
        listing(failed, version="9"),
        listing(failed, _event("Pod", name, "Pulled", "image", **pulled), version="9"),
    )
    snapshot = Snapshot(rayjob=_rayjob("Initializing"), pods=[_pod(name, is_ready=False)])
    told = []
    for _ in range(2):
        events = Reasons(cluster).events(snapshot, Phase.STARTING)
        known = Snapshot(rayjob=snapshot.rayjob, pods=snapshot.pods, events=events)
        told.append(state_of(known, now=_NOW).reason)
    assert "no such volume" in told[0]
    assert "no such volume" not in told[1]


def test_why_it_never_started_is_known_after_its_pods_are_gone(
    server: Playback, cluster: Cluster
) -> None:
    """Events outlive the pods that they are about by an hour."""
    gone = _event("Pod", "digits-abcde-head-x", "FailedMount", "no such volume")
    server.expect(_EVENTS, listing(gone, version="9"))
    rayjob = _rayjob("Failed", reason="PreRunningDeadlineExceeded")
    events = Reasons(cluster).events(Snapshot(rayjob=rayjob), Phase.FAILED)
    reason = state_of(Snapshot(rayjob=rayjob, events=events), now=_NOW).reason
    assert reason.endswith("(preRunningDeadlineSeconds): head pod: no such volume (FailedMount)")


def test_few_nodes_are_asked_for_one_by_one_and_many_at_once(
    server: Playback, cluster: Cluster
) -> None:
    """A run on two nodes needs not the list of a thousand, nor one on many a request for each."""
    server.expect(f"{_NODES}/node-0", Answer(body=_node("node-0", is_ready=False)))
    server.expect(f"{_NODES}/node-1", status(404, 'nodes "node-1" not found'))
    server.expect(_NODES, listing(*[_node(f"node-{n}", n > 0) for n in range(9)], version="9"))
    few, many = (
        Snapshot(
            rayjob=_rayjob("Running"),
            pods=[_pod(f"w-{n}", is_ready=False, node=f"node-{n}") for n in range(count)],
        )
        for count in (2, 7)
    )
    reasons = Reasons(cluster)
    for _ in range(2):
        found = reasons.nodes(few, Phase.TRAINING)
        assert [node["metadata"]["name"] for node in found] == ["node-0"]
        found = reasons.nodes(many, Phase.TRAINING)
        assert [node["metadata"]["name"] for node in found] == [f"node-{n}" for n in range(7)]
    assert "images" not in found[0]["status"]


def test_one_summary_serves_all_that_wait_in_a_queue(server: Playback, cluster: Cluster) -> None:
    """However many runs are queued, who is ahead of whom is asked once."""
    waiting = [
        {"metadata": {"name": f"w-{n}", "ownerReferences": [{"name": f"job-{n}"}]}}
        for n in range(3)
    ]
    server.expect(_PENDING, Answer(body={"items": waiting}))
    reasons = Reasons(cluster)

    def ahead(number: int) -> Any:
        workload = {"metadata": {"name": f"w-{number}"}, "spec": {"queueName": "q"}}
        snapshot = Snapshot(rayjob=_rayjob(""), workload=workload)
        return reasons.ahead(snapshot, Phase.QUEUED)

    assert [ahead(number) for number in range(4)] == [[], ["job-0"], ["job-0", "job-1"], None]


def test_what_may_not_be_read_is_as_if_it_were_not_there(
    server: Playback, cluster: Cluster
) -> None:
    """Nodes and events are not everybody's; without them there is less to say, and no error."""
    server.expect(_EVENTS, status(403, "events is forbidden"))
    server.expect(f"{_NODES}/node-1", status(403, "nodes is forbidden"))
    snapshot = Snapshot(rayjob=_rayjob("Initializing"), pods=[_pod("w", is_ready=False)])
    reasons = Reasons(cluster)
    for _ in range(2):
        assert reasons.events(snapshot, Phase.STARTING) == []
        assert reasons.nodes(snapshot, Phase.STARTING) == []


def test_an_answer_serves_until_it_is_replaced(server: Playback, cluster: Cluster) -> None:
    """What is known stays known while the cluster is away."""
    name = "digits-abcde-worker-1"
    failed = _event("Pod", name, "FailedMount", "no such volume")
    server.expect(_EVENTS, listing(failed, version="9"), status(500, "broken"))
    snapshot = Snapshot(rayjob=_rayjob("Initializing"), pods=[_pod(name, is_ready=False)])
    reasons = Reasons(cluster.with_backoff(Backoff(within_s=0.0)), kept_s=0.0)
    assert len(reasons.events(snapshot, Phase.STARTING)) == 1
    assert len(reasons.events(snapshot, Phase.STARTING)) == 1
