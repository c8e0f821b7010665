"""The control groups of the nodes: one tree for a cluster, in version 1 and 2 of the interface."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from testbed.commands import wait_until
from testbed.errors import SetupError

__all__ = ["create", "remove"]

_ROOT = Path("/sys/fs/cgroup")


def create(group: str) -> None:
    """
    Make a control group, such as ``/fp-1a2b3c4d/node-0``, in every hierarchy.

    The kubelet takes its root for granted. Nodes that shared one would end each other's pods.
    """
    for hierarchy in _hierarchies():
        parent = hierarchy
        for part in Path(group.strip("/")).parts:
            _open(parent)
            parent = parent / part
            parent.mkdir(exist_ok=True)
            _inherit_cpus(parent)


def remove(group: str) -> None:
    """Remove a control group with all below it; the processes in it must have ended."""
    for hierarchy in _hierarchies():
        top = hierarchy / group.strip("/")
        # The kernel takes a moment to let go of processes that have just ended.
        wait_until(lambda top=top: _is_removed(top), 30, f"{top} is empty")  # type: ignore[misc]


def _hierarchies() -> list[Path]:
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    found = sorted(path.parent for path in _ROOT.glob("*/cgroup.procs"))
    if not found:
        raise SetupError(f"no control groups are mounted at {_ROOT}")
    return found


def _open(parent: Path) -> None:
    """Version 2: let children of a group have every controller that it has itself."""
    available = parent / "cgroup.controllers"
    names = available.read_text(encoding="utf-8").split() if available.exists() else []
    if not names:
        return
    wanted = " ".join(f"+{name}" for name in names)
    try:
        (parent / "cgroup.subtree_control").write_text(wanted, encoding="utf-8")
    except OSError as error:
        raise SetupError(f"{parent}: {error.strerror}; processes in it, not in a child?") from error


def _inherit_cpus(group: Path) -> None:
    """Version 1: a new group of the hierarchy ``cpuset`` can hold no process without these."""
    if (group / "cgroup.controllers").exists():
        return
    for name in ("cpuset.cpus", "cpuset.mems"):
        target = group / name
        if target.exists() and not target.read_text(encoding="utf-8").strip():
            inherited = (group.parent / name).read_text(encoding="utf-8")
            target.write_text(inherited, encoding="utf-8")


def _is_removed(top: Path) -> bool:
    if not top.exists():
        return True
    folders = [path for path in top.rglob("*") if path.is_dir()]
    for folder in (*sorted(folders, reverse=True), top):
        with suppress(OSError):
            folder.rmdir()
    return not top.exists()
