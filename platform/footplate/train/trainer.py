"""Ray: the cluster that a run uses, and the worker group that Ray Train makes in it."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from footplate.data.plan import TASK_CPUS
from footplate.errors import PreemptedError, StartupError, TrainingError
from footplate.spec import RANK_RESOURCE, Job, parse_quantity
from footplate.train.environment import rank_environment
from footplate.train.rank_config import RankConfig
from footplate.train.rank_entry import begin_rank

__all__ = ["fit", "group_failure", "rank_resources", "ray_cluster"]

# CPUs for the tasks that gather data, next to the ranks: without any, nothing ever starts.
_DATA_CPUS_PER_RANK = 0.5
_DATA_SHARE = 0.25


@contextmanager
def ray_cluster(job: Job, *, local: bool) -> Iterator[str]:
    """
    Join the cluster that this process is part of, or start one on this machine alone.

    That one ends again; with the other, the process stays connected for its next attempt.

    Yields:
        Its address.
    """
    import ray

    if job.command is None:
        # While Ray starts. It imports nothing of Ray's, so neither can wait for the other.
        threading.Thread(target=import_module, args=("torch",), name="torch", daemon=True).start()
    if local:
        cores = os.cpu_count() or 1
        data_cpus = max(cores - job.workers.world_size, 1)
        # Ray's CPUs are tokens: more than the machine has only means more processes that share.
        ray.init(
            address="local",
            num_cpus=job.workers.world_size + data_cpus,
            include_dashboard=False,
        )
    elif not ray.is_initialized():
        ray.init(address="auto")
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        if local:
            ray.shutdown()


def rank_resources(job: Job, *, local: bool) -> dict[str, float]:
    """
    What Ray reserves for each rank: all of a pod but what its data tasks need.

    Where there are data workers, that is a single task's worth for a pod. Should all of them be
    away, the run is slow until one is back, and does not stand still.
    """
    workers = job.workers
    resources: dict[str, float] = {"GPU": 1} if workers.gpus else {}
    if local:
        return {"CPU": 1, **resources}
    cpus, ranks = float(parse_quantity(workers.cpus)), workers.ranks_per_pod
    if job.data_workers is None:
        for_data = max(_DATA_CPUS_PER_RANK * ranks, _DATA_SHARE * cpus)
    else:
        for_data = TASK_CPUS
    for_data = min(for_data, cpus / 2)
    # Ray counts ten-thousandths of a CPU. Rounding up could take what the data tasks need.
    own = math.floor((cpus - for_data) / ranks * 10_000) / 10_000
    return {"CPU": own, RANK_RESOURCE: 1, **resources}


def fit(
    job: Job, config: RankConfig, folder: Path, *, pods: int, local: bool
) -> dict[int, BaseException]:
    """
    Run the ranks to their end, once: what to do about a failure is not Ray's decision.

    Args:
        folder: Ray's own, on this machine.
        pods: How many worker pods the ranks are to be on.

    Returns:
        What Ray says of each rank that failed; empty if all returned.

    Raises:
        StartupError: If the worker group can't be started.
        PreemptedError: If its nodes were taken away.
        TrainingError: If Ray Train itself failed.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchConfig, TorchTrainer

    on_gpus = job.workers.gpus > 0
    world_size = pods * job.workers.ranks_per_pod
    environment = rank_environment(on_node=job.workers.ranks_per_pod)
    trainer = TorchTrainer(
        begin_rank,
        train_loop_config=config.to_dict(),
        torch_config=TorchConfig(backend="nccl" if on_gpus else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=world_size,
            use_gpu=on_gpus,
            resources_per_worker=rank_resources(job, local=local),
        ),
        run_config=RunConfig(
            name="train",
            worker_runtime_env={"env_vars": environment},
            storage_path=str(folder),
            failure_config=FailureConfig(
                max_failures=0,
                max_preemption_failures=0,
                # In a cluster the driver waits for workers, which Ray would not.
                controller_failure_limit=2 if local else 0,
            ),
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        if by_rank := getattr(error, "worker_failures", None):
            return dict(by_rank)
        raise group_failure(error, world_size) from error
    return {}


def group_failure(error: Exception, world_size: int) -> TrainingError:
    """What a failure means that Ray blames on no rank."""
    from ray.train import PreemptionError

    if isinstance(error, PreemptionError):
        return PreemptedError(f"nodes of the run were taken away: {error}")
    cause = getattr(error, "controller_failure", error)
    is_rays = type(cause).__module__.startswith("ray.")
    return (StartupError if is_rays else TrainingError)(
        f"the worker group could not be run: {error}",
        f"It wants {world_size} ranks; see the log for what Ray says.",
    )
