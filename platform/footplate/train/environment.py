"""The environments of a driver, here and in a cluster, and of the ranks."""

from __future__ import annotations

from collections.abc import Mapping

from footplate.processes import PURPOSE, RANK

__all__ = [
    "CONTROLLERS",
    "HEALTH_CHECK",
    "PRELOAD",
    "RANKS_ON_NODE",
    "cluster_environment",
    "local_environment",
    "rank_environment",
]

CONTROLLERS = 2
"""How many processes Ray Train waits for: its controller, and what cleans up behind it."""

HEALTH_CHECK = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
"""Names the variable with how often Ray Train looks at its ranks."""

PRELOAD = "RAY_preload_python_modules"
"""Names the variable with what Ray's processes import first."""

RANKS_ON_NODE = "FOOTPLATE_RANKS_ON_NODE"
"""Names the variable with how many ranks a pod has room for."""

# How soon the end or the failure of a rank is noticed.
_HEALTH_CHECK_S = "0.5"
# Of these, Ray Train hands on to the ranks what concerns them; the others are the driver's.
_OF_A_CLUSTER = {
    HEALTH_CHECK: _HEALTH_CHECK_S,
    # For the placement of ranks alone. The driver has seen that there is room before it asks, but
    # Ray takes a while to notice that a node is dead, and then the driver has to look again.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "30",
    # Prints go to standard output once, not to Ray's own log files as well.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # A log that is kept: every line once, and without escape codes.
    "RAY_DEDUP_LOGS": "0",
    "RAY_COLOR_PREFIX": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# Of a Ray that is this run's alone.
_OF_THIS_MACHINE = {
    HEALTH_CHECK: _HEALTH_CHECK_S,
    # Processes that wait for their next data task are kept: a new one imports for seconds. In a
    # cluster the pods have the same setting.
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    # Nothing here runs in a process of which Ray does not know what for.
    "RAY_prestart_worker_first_driver": "0",
}


def cluster_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """
    Environment variables to set before Ray is imported, which reads them then.

    Args:
        inherited: Of this process; what the template or the spec sets there wins.
    """
    return {name: value for name, value in _OF_A_CLUSTER.items() if name not in inherited}


def local_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """
    The same, for a driver that starts a Ray of its own.

    Args:
        inherited: Of this process; what is set there wins.
    """
    return {name: value for name, value in _OF_THIS_MACHINE.items() if name not in inherited}


def rank_environment(*, on_node: int) -> dict[str, str]:
    """
    Environment variables of the ranks beyond those of their pod, set when the process starts.

    Args:
        on_node: Ranks of a pod.
    """
    return {PURPOSE: RANK, RANKS_ON_NODE: str(on_node)}
