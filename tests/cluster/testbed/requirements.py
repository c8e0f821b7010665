"""
What the machine must have, and a message that names everything it lacks.

Uses the standard library alone: CI asks for the packages before there is an environment.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from testbed.errors import SetupError
from testbed.paths import Paths
from testbed.versions import go_directive

__all__ = ["CNI_PLUGINS", "PACKAGES", "check", "missing"]

CNI_PLUGINS = Path("/usr/lib/cni")

# Debian packages, each with a file that tells whether it is there.
PACKAGES = {
    "busybox-static": "busybox",
    "chromium": "chromium",
    "containerd": "containerd",
    "containernetworking-plugins": str(CNI_PLUGINS / "bridge"),
    "iproute2": "ip",
    "iptables": "iptables",
    "openssl": "openssl",
    "runc": "runc",
}

_MODULES = ("footplate", "mlflow", "ray", "torch")
_GIB = 2**30
_DISK_TO_RUN = 4 * _GIB
_DISK_TO_BUILD = 12 * _GIB  # compiled packages of Kubernetes and Kueue, mostly


def check(paths: Paths, *, builds: bool, runs: bool = True) -> None:
    """
    See that this machine can build or run the cluster.

    Raises:
        SetupError: Naming everything that is missing, at once.
    """
    lacking = missing(paths, builds=builds, runs=runs)
    if lacking:
        lines = "\n".join(f"  - {what}" for what in lacking)
        raise SetupError(f"The test cluster cannot run on this machine:\n{lines}")


def missing(paths: Paths, *, builds: bool, runs: bool = True) -> list[str]:
    """
    What this machine lacks, in words.

    Args:
        builds: Whether programs must still be compiled.
        runs: Whether the cluster is to be started, too.
    """
    if sys.platform != "linux":
        return ["Linux: the nodes are containers of this machine's kernel"]
    found = [*_go()] if builds else []
    if runs:
        found += [*_privileges(), *_packages(), *_environment()]
    return [*found, *_disk(paths, builds=builds)]


def _privileges() -> list[str]:
    if os.geteuid() == 0:
        return []
    return ["root: it makes network namespaces, mounts and control groups"]


def _packages() -> list[str]:
    lacking = sorted(name for name, file in PACKAGES.items() if not _has(file))
    return [f"Debian packages: apt-get install {' '.join(lacking)}"] if lacking else []


def _has(file: str) -> bool:
    return Path(file).exists() if file.startswith("/") else shutil.which(file) is not None


def _go() -> list[str]:
    wanted = go_directive()
    found = shutil.which("go")
    if not found:
        return [f"Go {wanted} or newer, as `go` on PATH: it compiles Kubernetes"]
    said = subprocess.run([found, "version"], capture_output=True, text=True).stdout
    match = re.search(r"go(\d+(?:\.\d+)*)", said)
    if match and _numbers(match[1]) >= _numbers(wanted):
        return []
    return [f"Go {wanted} or newer: {found} is {match[1] if match else said.strip()!r}"]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _environment() -> list[str]:
    lacking = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if not lacking:
        return []
    return [
        f"Python packages {', '.join(lacking)} in {sys.executable}: make venv, and use its Python"
    ]


def _disk(paths: Paths, *, builds: bool) -> list[str]:
    wanted = {paths.state: _DISK_TO_RUN, **({paths.cache: _DISK_TO_BUILD} if builds else {})}
    return [
        f"free disk: {needed // _GIB} GiB for {folder}, where {free / _GIB:.1f} GiB are free"
        for folder, needed in wanted.items()
        if (free := shutil.disk_usage(_existing(folder)).free) < needed
    ]


def _existing(folder: Path) -> Path:
    return next(found for found in (folder, *folder.parents) if found.exists())
