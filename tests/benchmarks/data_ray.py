"""The Ray of one process that is measured."""

from __future__ import annotations

import os

__all__ = ["start_ray"]

_OBJECT_STORE_BYTES = 2 << 30


def start_ray() -> None:
    """Start one of two CPUs, whose workers have started too; it ends with the process."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # As in a run: processes are not ended between two tasks.
    os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", "600000")
    import ray

    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level="ERROR",
    )
    ray.get([ray.remote(_nothing).remote() for _ in range(2)])


def _nothing() -> None:
    """What a worker does that only has to start."""
