"""
What Ray's processes in a cluster import before they are given work; importing it does that.

Ray is told its name where the pods are described. A process that will be a rank has the environment
of one already, and imports what ranks need: seconds that nobody waits for if the process was
started ahead of need (:mod:`footplate.train.standby`). So does one that may be the controller of
Ray Train, but only if nothing is wanted of it yet: Ray Train starts others with the same
environment, which need less. All others import what they need when they know what that is.
"""

from __future__ import annotations

import importlib
import os
import threading
import time

from footplate.processes import PURPOSE, RANK

__all__: list[str] = []

# The last is what torch's optimizers import when the first of them is made.
_OF_RANKS = ("ray.train.torch", "footplate.train.rank", "torch._dynamo")
_OF_A_CONTROLLER = ("footplate.train.rank",)
# The driver sets it, and Ray Train hands it on to its own processes alone.
_OF_RAY_TRAIN = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
# Whoever is started for something is given that at once.
_IDLE_S = 3.0


def _import(modules: tuple[str, ...]) -> None:
    for module in modules:
        importlib.import_module(module)


def _import_if_idle() -> None:
    import ray

    time.sleep(_IDLE_S)
    if ray.get_runtime_context().get_actor_id() is None:
        _import(_OF_A_CONTROLLER)


if os.environ.get(PURPOSE) == RANK:
    _import(_OF_RANKS)
elif PURPOSE not in os.environ and _OF_RAY_TRAIN in os.environ:
    threading.Thread(target=_import_if_idle, name="preload", daemon=True).start()
