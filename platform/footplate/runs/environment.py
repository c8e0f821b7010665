"""The environment of a run on this machine."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from footplate.spec import Job

__all__ = ["local_environment"]


def local_environment(job: Job, inherited: Mapping[str, str], cores: int) -> dict[str, str]:
    """
    Environment variables of the driver, from which everything that Ray starts inherits.

    They are set before the driver starts, since Ray and torch read them when imported.

    Args:
        inherited: Of this process; what the user has set there wins over our defaults.
        cores: Of this machine.
    """
    defaults = {
        # Ranks share the cores instead of each taking all of them.
        "OMP_NUM_THREADS": str(max(cores // job.workers.world_size, 1)),
        # How soon the end or the failure of a rank is noticed.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        # Nothing takes a node of this machine away with notice.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        # Prints go to standard output once, not to Ray's own log files as well.
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        # The log of a run is a file: every line once, and without escape codes.
        "RAY_DEDUP_LOGS": "0",
        "RAY_COLOR_PREFIX": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Only this run's processes may talk to its Ray, and no token is left in the home folder.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_urlsafe(32),
    }
    return {**defaults, **inherited, **job.env}
