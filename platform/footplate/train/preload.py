"""
What Ray's processes in a cluster do before they are given work; importing it does that.

Ray is told its name where the pods are described. A process that will be a rank has the environment
of one already, and imports what ranks need: seconds that nobody waits for if the process was
started ahead of need (:mod:`footplate.train.standby`). One that may be the controller of Ray Train
imports the largest part of what that needs, but only if nothing is wanted of it yet: Ray Train
starts others with the same environment, which need less. All others import what they need when they
know what that is.

A process that stands by holds a place of its node. Ranks ask for no more than there are places
free; how many are on the head only that node can tell, so a controller that finds none ends.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Sequence

from footplate.processes import PURPOSE, RANK
from footplate.train.environment import CONTROLLERS, HEALTH_CHECK, RANKS_ON_NODE
from footplate.train.places import CONTROLLER, taken

__all__: list[str] = []

# The last is what torch's optimizers import when the first of them is made.
_OF_RANKS = ("ray.train.torch", "footplate.train.rank", "torch._dynamo")
# In a thread, so nothing of Ray's: its modules import each other in circles, which only one thread
# can go around, and work may come at any time. These wait for nothing that work imports.
_OF_A_CONTROLLER = ("pandas", "pyarrow", "torch")
# Whoever is started for something is given that at once.
_IDLE_S = 3.0
_LOOK_S = 1.0


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)


def _stand_by(purpose: str, places: int, modules: Sequence[str]) -> None:
    """Wait for work, in a thread, if there is a place for that."""
    import ray

    while not ray.is_initialized():
        time.sleep(_LOOK_S)
    time.sleep(_IDLE_S)
    if _has_work():
        return
    place = taken(purpose, places, node=os.getppid())
    if place is None:
        if purpose == CONTROLLER:
            os._exit(0)
        return
    _import(modules)
    while not _has_work():
        time.sleep(_LOOK_S)
    os.close(place)


def _has_work() -> bool:
    import ray

    context = ray.get_runtime_context()
    # The user's own tasks, which ranks may start, have the environment of a rank.
    return context.get_actor_id() is not None or bool(context.get_assigned_resources())


def _begin(purpose: str, places: int, modules: Sequence[str]) -> None:
    arguments = (purpose, places, modules)
    threading.Thread(target=_stand_by, args=arguments, name="standby", daemon=True).start()


if os.environ.get(PURPOSE) == RANK:
    _begin(RANK, int(os.environ[RANKS_ON_NODE]), ())
    _import(_OF_RANKS)
# The driver sets the latter, and Ray Train hands it on to its own processes alone.
elif PURPOSE not in os.environ and HEALTH_CHECK in os.environ:
    _begin(CONTROLLER, CONTROLLERS, _OF_A_CONTROLLER)
