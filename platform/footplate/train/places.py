"""Places for processes that stand by: so many on a node, each held by a lock that goes with it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

__all__ = ["CONTROLLER", "free", "taken"]

CONTROLLER = "controller"
"""The purpose of what stands by for Ray Train itself."""


def taken(purpose: str, places: int, *, node: int) -> int | None:
    """
    Take a place.

    Args:
        places: That there are on the node.
        node: Process id of its raylet.

    Returns:
        The descriptor that holds it; None if all are taken.
    """
    for number in range(places):
        name = f"footplate-{node}-{purpose}-{number}.lock"
        place = os.open(Path(tempfile.gettempdir(), name), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(place)
        else:
            return place
    return None


def free(purpose: str, places: int, *, node: int) -> int:
    """How many places are not taken."""
    found = []
    while (place := taken(purpose, places, node=node)) is not None:
        found.append(place)
    for place in found:
        os.close(place)
    return len(found)
