"""
What the guard does about what it sees; pure, so that recorded clusters can be played to it.

Every rule looks at the present alone, and at one that has lasted: what passes by itself is left
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from footplate.cluster import POD, RAYJOB, WORKLOAD
from footplate.runs.fields import condition, string, timestamp
from footplate.runs.guard.act import Act, Deed, Deletion
from footplate.runs.guard.events import rfc3339
from footplate.runs.guard.renewal import renewal
from footplate.runs.guard.world import (
    Object,
    Reference,
    World,
    is_leaving,
    is_true,
    labels,
    status_of,
)
from footplate.runs.marks import JOB_UID_LABEL, NAME_LABEL
from footplate.runs.pod import Pod

__all__ = ["MARGIN_S", "acts", "outage"]

MARGIN_S = 10.0
"""How long a pod or a node must have been overdue; clocks differ a little, too."""

_WITH_CLUSTER = {"Initializing", "Waiting", "Running"}


def outage(world: World) -> str | None:
    """
    Why nothing may be done at all, or None.

    When most nodes are gone at once it is more likely the control plane that is cut off while the
    pods train on: what it then says of them is no ground for deleting any.
    """
    if not world.nodes:
        return "no nodes are to be seen"
    lost = sum(not _is_ready(node) for node in world.nodes)
    if 2 * lost > len(world.nodes):
        return f"{lost} of {len(world.nodes)} nodes are not ready at once"
    return None


def acts(world: World, now: float) -> list[Act]:
    """
    What is to be done now.

    Args:
        now: Seconds since the epoch.
    """
    # A label can say anything: what it says of another namespace is not believed.
    workloads = {
        (found["metadata"]["namespace"], labels(found).get(JOB_UID_LABEL)): found
        for found in world.workloads
    }
    found = list(_replaced_pods(world, now))
    for rayjob in world.rayjobs:
        uid = rayjob["metadata"]["uid"]
        workload = workloads.get((rayjob["metadata"]["namespace"], uid))
        if is_leaving(rayjob):
            continue
        act = _released(rayjob, workload, world.pods)
        act = act or renewal(rayjob, workload, world.wishes.get(uid))
        if act is not None:
            found.append(act)
    return found


def _replaced_pods(world: World, now: float) -> Iterator[Act]:
    """
    Pods that only a lost node could end.

    They would stay for ever, and KubeRay makes no other while they are there.
    """
    nodes = {node["metadata"]["name"]: node for node in world.nodes}
    rayjobs = {
        (rayjob["metadata"]["namespace"], rayjob["status"].get("rayClusterName")): rayjob
        for rayjob in world.rayjobs
        if status_of(rayjob) in _WITH_CLUSTER and not is_leaving(rayjob)
    }
    for pod in world.pods:
        cluster = labels(pod).get("ray.io/cluster")
        rayjob = rayjobs.get((pod["metadata"]["namespace"], cluster)) if cluster else None
        if rayjob is None or not _is_overdue(pod, now):
            continue
        node = pod["spec"].get("nodeName")
        if node and (trouble := _trouble_of(nodes.get(node), now)):
            yield _replacement(pod, rayjob, f"its node {node} {trouble}")


def _is_overdue(pod: Object, now: float) -> bool:
    # The time of deletion is the end of the grace period already.
    end = timestamp(pod, "metadata", "deletionTimestamp")
    return end is not None and now - end > MARGIN_S


def _trouble_of(node: Object | None, now: float) -> str | None:
    """What keeps a node from ending its pods, or None."""
    if node is None:
        return "is gone"
    ready = condition(node, "Ready")
    if ready is None or ready.is_true or ready.since is None or now - ready.since <= MARGIN_S:
        return None
    return f"has not been ready since {rfc3339(ready.since)}"


def _is_ready(node: Object) -> bool:
    ready = condition(node, "Ready")
    return ready is None or ready.is_true


def _replacement(pod: Object, rayjob: Object, why: str) -> Act:
    target = Reference.to(POD, pod)
    return Act(
        deed=Deed.REPLACE_POD,
        target=target,
        rayjob=Reference.to(RAYJOB, rayjob),
        reason="ReplacedLostPod",
        sentence=(
            f"deleted {Pod(pod).called} {target.name} by force, so that "
            f"KubeRay makes another: it should have been gone at "
            f"{pod['metadata']['deletionTimestamp']}, but {why}"
        ),
        steps=(Deletion(target, grace_period_s=0),),
    )


def _released(rayjob: Object, workload: Object | None, pods: Sequence[Object]) -> Act | None:
    """
    The quota of a job that KubeRay has refused.

    Kueue up to 0.17 does not take such a job for finished, so it keeps its quota for ever.
    Deactivating the Workload is no remedy: its reservation stays, because KubeRay never says that
    a refused job is suspended, and counts again when Kueue starts anew. Without the Workload the
    quota is free, Kueue makes no new one for a job in this state, and the RayJob stays to be read.
    """
    if status_of(rayjob) != "ValidationFailed" or workload is None:
        return None
    if is_true(workload, "Finished") or is_leaving(workload):
        return None
    # A job that was edited into invalidity may still train: then its quota is in use.
    if rayjob["status"].get("rayClusterName") or any(_is_of(pod, rayjob) for pod in pods):
        return None
    target = Reference.to(WORKLOAD, workload)
    return Act(
        deed=Deed.RELEASE_QUOTA,
        target=target,
        rayjob=Reference.to(RAYJOB, rayjob),
        reason="ReleasedQuota",
        sentence=(
            f"deleted Workload {target.name}, which would hold its quota for ever: KubeRay has "
            f"refused the job. {string(rayjob, 'status', 'message')}"
        ).rstrip(),
        steps=(Deletion(target),),
    )


def _is_of(pod: Object, rayjob: Object) -> bool:
    mine, its = rayjob["metadata"], pod["metadata"]
    name = labels(pod).get(NAME_LABEL)
    return (name, its["namespace"]) == (mine["name"], mine["namespace"])
