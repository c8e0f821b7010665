"""What events say of pods: all that is left once they are gone, and at times all there ever was."""

from __future__ import annotations

import re
from collections.abc import Sequence

from footplate.render import DATA_GROUP
from footplate.runs.fields import Fields, string, timestamp
from footplate.runs.text import one_line

__all__ = ["last_trouble", "last_warning", "unpulled"]

# Warnings that accompany a normal start, or repeat what the pod's own status says better.
_NOISE = frozenset({"BackOff", "DNSConfigForming", "FailedScheduling", "NodeNotReady", "Unhealthy"})
# After one of these, what went wrong before has been overcome.
_GOES_ON = frozenset({"Pulling", "Pulled", "Created", "Started"})
_REPEATS = re.compile(r"Error: (ErrImagePull|ImagePullBackOff)$")
_PULL_PREFIX = re.compile(
    r'^(?:Back-off pulling image "[^"]*": )?(?:ErrImagePull: )?'
    r'(?:Failed to pull image "[^"]*": )?'
    r'(?:failed to pull and unpack image "[^"]*": )?(?:failed to resolve reference "[^"]*": )?'
)
# KubeRay's names: that of the cluster, which may be anything, the group's, and a random end.
_HEAD = re.compile(r"-head-[^-]+$")
_DATA_WORKER = re.compile(rf"-{DATA_GROUP}-worker-[^-]+$")
_IMAGE_NAME = re.compile(r'image "([^"]+)"')


def last_trouble(cluster: str, events: Sequence[Fields]) -> str:
    """
    What the pods of a RayCluster said last, from events, once the pods are gone.

    Args:
        cluster: Its name; pods are named after it.
        events: As far as there still are any.

    Returns:
        ``head pod: ...``; empty if nothing is known.
    """
    told = [
        event
        for event in events
        if _is_warning(event, _NOISE - {"FailedScheduling"})
        and (cluster and string(event, "involvedObject", "name").startswith(f"{cluster}-"))
    ]
    if not told:
        return ""
    newest = max(told, key=_time)
    return f"{_called(string(newest, 'involvedObject', 'name'))}: {_news(newest)}"


def last_warning(pod: str, events: Sequence[Fields]) -> str:
    """
    The newest warning about a pod.

    Args:
        pod: Its name.

    Returns:
        Empty if there is none, or if the pod has gone on since.
    """
    about = [event for event in events if string(event, "involvedObject", "name") == pod]
    warnings = [event for event in about if _is_warning(event, _NOISE)]
    if not warnings:
        return ""
    newest = max(warnings, key=_time)
    goes_on = (e for e in about if string(e, "reason") in _GOES_ON and _time(e) > _time(newest))
    return "" if any(goes_on) else _news(newest)


def unpulled(message: str, reason: str, image: str = "") -> str:
    """Why an image is not there, without the names that the message repeats."""
    named = _IMAGE_NAME.search(message)
    which = image or (named[1] if named else "of the runtime")
    cause = one_line(_PULL_PREFIX.sub("", message))
    return f"image {which} cannot be pulled ({': '.join(filter(None, (reason, cause)))})"


def _called(pod: str) -> str:
    """What a pod is, by the name that KubeRay gave it: there are no labels any more."""
    if _HEAD.search(pod):
        return "head pod"
    return "data worker pod" if _DATA_WORKER.search(pod) else "worker pod"


def _is_warning(event: Fields, noise: frozenset[str]) -> bool:
    about = string(event, "involvedObject", "kind")
    kind, reason = string(event, "type"), string(event, "reason")
    repeats = _REPEATS.match(string(event, "message"))
    return about == "Pod" and kind == "Warning" and reason not in noise and not repeats


def _news(event: Fields) -> str:
    message, reason = string(event, "message"), string(event, "reason")
    if message.startswith("Failed to pull image"):
        return unpulled(message, "ErrImagePull")
    said = one_line(message.removeprefix("Error: ")) or reason
    return said if reason in ("Failed", "") else f"{said} ({reason})"


def _time(event: Fields) -> float:
    times = (timestamp(event, key) for key in ("eventTime", "lastTimestamp", "firstTimestamp"))
    return next((time for time in times if time is not None), 0.0)
