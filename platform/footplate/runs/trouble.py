"""What keeps pods from running, as far as Kubernetes tells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from footplate.runs.fields import Fields, condition, field, integer, items, string
from footplate.runs.pod import Pod
from footplate.runs.pod_events import last_warning, unpulled
from footplate.runs.text import counted, elapsed, one_line

__all__ = ["Trouble", "troubles"]

# What every container says on its way to a good start.
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
_IMAGE = frozenset(
    {
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
    }
)


class Trouble(NamedTuple):
    """
    What is wrong with a pod.

    Attributes:
        what: A clause of its own, or what follows on "worker pod x".
        is_predicate: Which of the two.
        is_lost: Nothing changes until somebody acts on the node or the pod.
    """

    pod: Pod
    what: str
    is_predicate: bool = False
    is_lost: bool = False

    def __str__(self) -> str:
        if self.is_predicate:
            return f"{self.pod.called} {self.pod.name} {self.what}"
        which = self.pod.called if self.pod.is_head else f"{self.pod.called} {self.pod.name}"
        return f"{which}: {self.what}"


def troubles(
    pods: Sequence[Pod], nodes: Sequence[Fields], events: Sequence[Fields], now: float
) -> list[Trouble]:
    """
    What is wrong with each pod that something is wrong with: the head first, data workers last.

    Args:
        nodes: As far as they may be read.
        events: About the pods, as far as there still are any.
    """
    found = (
        _lost(pod, nodes, now)
        or _ending(pod, now)
        or _ended(pod)
        or _unscheduled(pod)
        or _in_containers(pod)
        or _warned(pod, events)
        for pod in sorted(pods, key=lambda pod: (not pod.is_head, pod.is_data_worker))
        if not pod.is_ready or _node_loss(pod, nodes, now)
    )
    return [trouble for trouble in found if trouble is not None]


def _node_loss(pod: Pod, nodes: Sequence[Fields], now: float) -> str:
    for node in nodes:
        if pod.node and string(node, "metadata", "name") == pod.node:
            ready = condition(node, "Ready")
            if ready is None or ready.is_true:
                return ""
            how = "not been ready" if ready.status == "False" else "been lost"
            span = f" for {elapsed(now - ready.since)}" if ready.since is not None else ""
            return f"is on node {pod.node}, which has {how}{span}"
    return ""


def _lost(pod: Pod, nodes: Sequence[Fields], now: float) -> Trouble | None:
    what = _node_loss(pod, nodes, now)
    if not what and pod.is_stuck(now):
        overdue = elapsed(now - (pod.ends or now))
        what = f"should have ended {overdue} ago, and its node {pod.node} does not end it"
    if not what or not pod.is_live:
        return None
    remedy = (
        "Kubernetes keeps the pod until the node returns or someone deletes it "
        "(footplate guard does)"
    )
    return Trouble(pod, f"{what}; {remedy}", is_predicate=True, is_lost=True)


def _ending(pod: Pod, now: float) -> Trouble | None:
    if not pod.is_ending or not pod.is_live:
        return None
    disruption = condition(pod.object, "DisruptionTarget")
    why = f": {one_line(disruption.message)}" if disruption and disruption.message else ""
    left = f" within {elapsed(pod.ends - now)}" if pod.ends is not None else ""
    return Trouble(pod, f"is being ended{left}{why}", is_predicate=True)


def _ended(pod: Pod) -> Trouble | None:
    if pod.is_live:
        return None
    reason, message = (
        string(pod.object, "status", "reason"),
        string(pod.object, "status", "message"),
    )
    told = [one_line(text) for text in (reason, message) if text]
    told += [_exit(ended) for _, ended in _terminated(pod, "state")][:1] if not told else []
    return Trouble(pod, f"has ended: {': '.join(told) or pod.phase}", is_predicate=True)


def _unscheduled(pod: Pod) -> Trouble | None:
    scheduled = condition(pod.object, "PodScheduled")
    if scheduled is None or scheduled.status != "False":
        return None
    if scheduled.reason == "SchedulingGated":
        return Trouble(pod, "Kueue has not yet said which node it goes to")
    # What follows is about preemption by the scheduler, which never helps a gang.
    message = re.split(r"\.? (?:no new claims to deallocate|preemption:)", scheduled.message)[0]
    return Trouble(
        pod, f"no node fits: {one_line(message) or scheduled.reason or 'no reason told'}"
    )


def _warned(pod: Pod, events: Sequence[Fields]) -> Trouble | None:
    """What only events tell: a volume that cannot be mounted leaves no word in the pod."""
    warning = "" if pod.phase == "Running" else last_warning(pod.name, events)
    return Trouble(pod, warning) if warning else None


def _in_containers(pod: Pod) -> Trouble | None:
    for status in _statuses(pod):
        reason = string(status, "state", "waiting", "reason")
        if reason == "CrashLoopBackOff":
            break
        if reason not in _STARTING:
            return Trouble(pod, _not_started(pod, status, reason))
    for key in ("state", "lastState"):
        for status, ended in _terminated(pod, key):
            if integer(ended, "exitCode") or integer(status, "restartCount"):
                return Trouble(pod, f"container {string(status, 'name')} {_ends(status, ended)}")
    return None


def _not_started(pod: Pod, status: Fields, reason: str) -> str:
    message = string(status, "state", "waiting", "message")
    if reason in _IMAGE:
        # The kubelet alternates between trying and waiting; to a reader it is one thing.
        tried = reason == "ImagePullBackOff" and "ErrImagePull" in message
        return unpulled(message, "ErrImagePull" if tried else reason, _image(pod, status))
    what = f"container {string(status, 'name')} cannot start"
    return f"{what}: {one_line(message)} ({reason})" if message else f"{what} ({reason})"


def _image(pod: Pod, status: Fields) -> str:
    name = string(status, "name")
    for container in (*items(pod.object, "spec", "containers"), status):
        if container.get("name") == name and (image := string(container, "image")):
            return image
    return ""


def _ends(status: Fields, ended: Fields) -> str:
    restarts = integer(status, "restartCount")
    again = f", restarted {counted(restarts, 'time')}" if restarts else ""
    return f"ended with {_exit(ended)}{again}"


def _exit(ended: Fields) -> str:
    reason = string(ended, "reason")
    return f"exit code {integer(ended, 'exitCode')}" + (f" ({reason})" if reason else "")


def _statuses(pod: Pod) -> Iterator[Fields]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from items(pod.object, "status", kind)


def _terminated(pod: Pod, key: str) -> Iterator[tuple[Fields, Fields]]:
    """Each container that has ended, the init containers that did their work aside."""
    for status in _statuses(pod):
        ended = field(status, key, "terminated")
        if isinstance(ended, Mapping) and not (ended.get("exitCode") == 0 and key == "state"):
            yield status, ended
