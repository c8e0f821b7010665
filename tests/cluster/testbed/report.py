"""What is kept of a cluster on which something failed."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from testbed.errors import SetupError
from testbed.paths import CHECKOUT

__all__ = ["keep", "tail"]

_QUERIES = {
    "objects.yaml": ("get", "all,configmaps,events", "-A", "-o", "yaml"),
    "jobs.yaml": ("get", "rayjobs,rayclusters,workloads,clusterqueues", "-A", "-o", "yaml"),
    "nodes.yaml": ("get", "nodes", "-o", "yaml"),
    "kuberay.log": ("logs", "-n", "ray-system", "deployment/kuberay-operator"),
    "kueue.log": ("logs", "-n", "kueue-system", "deployment/kueue-controller-manager"),
}
_LINES = 3


def keep(logs: Path, kubectl: Callable[..., str]) -> Path:
    """
    Copy what tells about a failure to a folder that outlives the cluster.

    Args:
        logs: Of the components.
        kubectl: Asks the cluster, which may not answer any more.

    Returns:
        The folder: in ``.testbed-failure`` of the checkout, or in the one that the environment
        variable ``FOOTPLATE_TESTBED_FAILURES`` names.
    """
    parent = Path(os.environ.get("FOOTPLATE_TESTBED_FAILURES", CHECKOUT / ".testbed-failure"))
    folder = parent / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    if logs.exists():
        shutil.copytree(logs, folder / "logs", dirs_exist_ok=True)
    for name, query in _QUERIES.items():
        with suppress(SetupError):
            (folder / name).write_text(kubectl(*query, "--request-timeout=10s"))
    return folder


def tail(folder: Path) -> str:
    """The last lines of each log that speak of trouble."""
    logs = sorted(folder.rglob("*.log"))
    return "\n".join(block for log in logs if (block := _trouble(log)))


def _trouble(log: Path) -> str:
    with log.open(encoding="utf-8", errors="replace") as lines:
        last = deque((line.rstrip()[:300] for line in lines if _is_trouble(line)), maxlen=_LINES)
    return "\n".join([f"-- {log.name}", *(f"   {line}" for line in last)]) if last else ""


def _is_trouble(line: str) -> bool:
    # Kubernetes marks its lines by one letter: E1129 12:00:00.123456
    if re.match(r"[A-Z]\d{4} ", line):
        return line.startswith(("E", "F"))
    words = ("Error:", "ERROR", "error:", "fatal", "level=error", "panic:", "Traceback")
    return any(word in line for word in words)
