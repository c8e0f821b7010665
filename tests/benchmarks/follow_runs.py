"""
``python follow_runs.py ARM KUBECONFIG NAMESPACE SECONDS``: follow RayJobs, and say what it took.

A process of its own for each measurement of ``watch_runs``. It prints JSON: the memory beyond
what the imported libraries take, and what it knows in the end.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["main"]

_ENDED = "Complete"
_Counts = tuple[int, int]


def main() -> None:
    """Follow, as the command line says."""
    arm, kubeconfig, namespace, seconds = sys.argv[1:]
    start: Callable[[str, str], Iterator[_Counts]] = {"footplate": _footplate, "plain": _plain}[arm]
    counts = start(kubeconfig, namespace)
    imported = _memory_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # from here on the peak counts
    began = time.monotonic()
    resident, known = [], (0, 0)
    for seen in counts:
        known = seen
        resident.append(_memory_mb("VmRSS"))
        if time.monotonic() >= began + float(seconds):
            break
    told = {
        "seconds": time.monotonic() - began,
        "imported_mb": imported,
        "settled_mb": statistics.median(resident[len(resident) // 2 :]) - imported,
        "peak_mb": _memory_mb("VmHWM") - imported,
        "looks": len(resident),
        "total": known[0],
        "ended": known[1],
    }
    print(json.dumps(told))


def _footplate(kubeconfig: str, namespace: str) -> Iterator[_Counts]:
    """As ``footplate watch`` follows all runs of a namespace."""
    from footplate.cluster import connect
    from footplate.runs.looking import selections_of_many
    from footplate.runs.state import Phase
    from footplate.runs.watching import Watching

    cluster = connect(kubeconfig=kubeconfig, namespace=namespace)

    def looks() -> Iterator[_Counts]:
        chosen = selections_of_many(namespace)
        with Watching(cluster, chosen, with_store=False) as watching:
            for states in watching.states():
                phases = [state.phase for state in states.values()]
                yield len(phases), phases.count(Phase.SUCCEEDED)

    return looks()


def _plain(kubeconfig: str, namespace: str) -> Iterator[_Counts]:
    """As scripts do: list everything again each second."""
    from kubernetes import client, config

    api = client.CustomObjectsApi(config.new_client_from_config(kubeconfig))

    def looks() -> Iterator[_Counts]:
        while True:
            began = time.monotonic()
            newest: Any = api.list_namespaced_custom_object("ray.io", "v1", namespace, "rayjobs")
            ended = [job["status"]["jobDeploymentStatus"] for job in newest["items"]]
            yield len(ended), ended.count(_ENDED)
            time.sleep(max(0.0, began + 1.0 - time.monotonic()))

    return looks()


def _memory_mb(field: str) -> float:
    """A field of this process's status, which the kernel gives in KiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(field)


if __name__ == "__main__":
    main()
