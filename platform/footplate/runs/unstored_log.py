"""What was printed before anything came to the store: by a driver that died early, or a head."""

from __future__ import annotations

from collections.abc import Iterator

from footplate.cluster import POD, Cluster
from footplate.errors import AccessDeniedError, ObjectMissingError
from footplate.runs.driver_message import driver_output
from footplate.runs.fields import Fields, items, string
from footplate.runs.marks import NAME_LABEL
from footplate.runs.observer import Observer
from footplate.runs.pod import Pod

__all__ = ["unstored_lines"]


def unstored_lines(
    cluster: Cluster, rayjob: Fields, *, tail: int | None, observer: Observer
) -> Iterator[str]:
    """
    The lines, from where they still are: none if nowhere.

    KubeRay keeps the end of what a driver printed once that has failed, and deletes its pods. As
    long as the head pod is there it tells why there is no driver.

    Args:
        tail: Only the last so many.
        observer: Is told where they come from.
    """
    nothing = f"nothing is in the store of {string(rayjob, 'metadata', 'name')}"
    if lines := driver_output(string(rayjob, "status", "message")):
        observer.note(f"{nothing}; its RayJob has the last that the driver printed:")
        yield from lines[-tail:] if tail else lines
    elif (head := _newest_head(cluster, rayjob)) is not None:
        try:
            found = _log_of(cluster, head, tail)
        except ObjectMissingError:
            return  # it has not printed yet, or is gone
        except AccessDeniedError as error:
            observer.note(f"{nothing}, and {error.message}")
            return
        observer.note(f"{nothing} yet; its head pod {head.name} has printed:")
        yield from found


def _newest_head(cluster: Cluster, rayjob: Fields) -> Pod | None:
    """Of the RayCluster that the RayJob has now."""
    name, namespace = (string(rayjob, "metadata", key) for key in ("name", "namespace"))
    current = string(rayjob, "status", "rayClusterName")
    if not current:
        return None
    pods = cluster.list(POD, namespace=namespace, labels=f"{NAME_LABEL}={name}")
    heads = [pod for pod in map(Pod, pods) if pod.is_head and pod.cluster == current]
    return max(heads, key=_created, default=None)


def _created(pod: Pod) -> str:
    return string(pod.object, "metadata", "creationTimestamp")


def _log_of(cluster: Cluster, head: Pod, tail: int | None) -> Iterator[str]:
    # KubeRay takes the first container for Ray's, whatever is injected behind it.
    container = next(iter(items(head.object, "spec", "containers")), {})
    return cluster.log_lines(
        head.name,
        namespace=string(head.object, "metadata", "namespace"),
        container=string(container, "name") or None,
        tail=tail,
    )
