"""Removing a RayJob, and with it everything that it owns."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from footplate.cluster import RAYJOB, Cluster
from footplate.errors import ClusterError, ObjectConflictError

__all__ = ["remove"]

# KubeRay's finalizer asks Ray to stop the job before the object goes.
_DELETION_S = 120.0
_PAUSE_S = 0.5


def remove(
    cluster: Cluster,
    name: str,
    *,
    namespace: str,
    uid: str,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """
    Delete the RayJob that has this UID, and wait until it is gone.

    Args:
        sleep: Waits between looks, in seconds.

    Raises:
        ClusterError: If it is not gone after two minutes.
    """
    with suppress(ObjectConflictError):  # another one has its name: this one is gone
        cluster.delete(RAYJOB, name, namespace=namespace, uid=uid)
    for _ in range(int(_DELETION_S / _PAUSE_S)):
        there = cluster.find(RAYJOB, name, namespace=namespace)
        if there is None or there["metadata"]["uid"] != uid:
            return
        sleep(_PAUSE_S)
    raise ClusterError(
        f"{name} was deleted {_DELETION_S:.0f} s ago and is still there",
        f"Something holds it: kubectl -n {namespace} get rayjob {name} -o yaml shows its "
        "finalizers.",
    )
