"""What runs in every training process."""

from __future__ import annotations

from pathlib import Path

import ray
import ray.train
import ray.train.torch
import torch

from footplate.checkpoints.integrity import read_committed
from footplate.checkpoints.origin import Origin
from footplate.checkpoints.restore import CheckpointReader
from footplate.data.source import CacheFolder
from footplate.errors import CheckpointGoneError
from footplate.spec import Job
from footplate.store import (
    CheckpointName,
    DataVersion,
    End,
    RunPaths,
    RunRecord,
    Store,
    open_store,
    to_json,
)
from footplate.train import randomness
from footplate.train.context import Context, StopTraining
from footplate.train.entrypoint import load_function
from footplate.train.failure import failure_of, report_failure
from footplate.train.folder import working_folder
from footplate.train.group import RankGroup
from footplate.train.output import labelled_output
from footplate.train.rank_config import RankConfig
from footplate.train.reliability import Reliability
from footplate.train.sources import cache_folder, data_sources
from footplate.train.standby import standing_by
from footplate.train.start import Start

__all__ = ["rank_main"]


def rank_main(config: RankConfig) -> None:
    """Train, on one rank. Reports its own failure before it raises."""
    record = RunRecord.model_validate_json(config.record)
    job = Job.from_dict(record.spec, folder=Path(config.folder), source=record.name)
    store = open_store(job)
    run = record.paths
    group = _join()
    progress: list[Context] = []
    try:
        # On all nodes of ranks before any rank goes on; data tasks run there, too.
        folders = group.agree(lambda: working_folder(record, store, job.folder))
        job = job.at(folders[group.rank])
        with cache_folder(
            job.cache,
            store,
            run=record.uid,
            ranks_on_node=group.ranks_on_node,
            is_mapped=any(dataset.map for dataset in job.data.values()),
        ) as cache:
            _train(config, job, group, store, run, cache, progress)
    except Exception as error:
        failure = failure_of(
            error,
            rank=group.rank,
            step=progress[0].step_number if progress else None,
            folder=Path(job.path(job.code)),
        )
        report_failure(store, run.attempt(config.attempt), failure)
        raise
    finally:
        for context in progress:
            context.close()


def _train(
    config: RankConfig,
    job: Job,
    group: RankGroup,
    store: Store,
    run: RunPaths,
    cache: CacheFolder | None,
    progress: list[Context],
) -> None:
    versions = {name: DataVersion.model_validate_json(v) for name, v in config.data.items()}
    context = Context(
        job,
        group,
        data_sources(job, versions, cache, config.record, ranks_on_node=group.ranks_on_node),
        store,
        run,
        attempt=config.attempt,
        start=_start(config, store, run),
        reliability=Reliability(**config.reliability) if config.reliability else None,
        nodes=frozenset(group.gather(ray.get_runtime_context().get_node_id())),
    )
    progress.append(context)
    assert job.entrypoint is not None
    function = load_function(job.entrypoint, Path(job.path(job.code)))
    randomness.seed_everything(job.seed)
    stopped, first_step = False, context.step_number
    try:
        with (
            labelled_output(group.rank),
            standing_by(group, lambda: context.step_number > first_step),
        ):
            function(context)
        context.finish()
    except StopTraining as stop:
        if stop.error is not None:
            raise stop.error from None
        stopped = True
    finally:
        context.release()
    if group.is_first:
        end = End(
            stopped=stopped,
            step=context.step_number,
            total_steps=context.total_steps,
            epochs=context.epochs_done,
            checkpoint=context.checkpoint,
            metrics=context.newest_metrics,
        )
        store.put(run.attempt(config.attempt).end, to_json(end))


def _start(config: RankConfig, store: Store, run: RunPaths) -> Start | None:
    """
    The checkpoint that the attempt claims to start from.

    Raises:
        CheckpointGoneError: If it is gone: starting over instead would break the claim.
        CheckpointError: If it is not what was written.
    """
    if config.resume is None:
        return _start_elsewhere(config.origin) if config.origin else None
    name = CheckpointName.parse(config.resume)
    assert name is not None
    try:
        manifest = read_committed(store, run.checkpoint(name), name)
    except CheckpointGoneError as error:
        raise CheckpointGoneError(
            f"checkpoint {config.resume} is gone since attempt {config.attempt} claimed to start "
            f"from it: {error.message}",
            "Run again: the next attempt starts from what is there then.",
        ) from error
    return Start(manifest=manifest, reader=CheckpointReader(store, run.checkpoint(name), manifest))


def _start_elsewhere(record: str) -> Start:
    origin = Origin.model_validate_json(record)
    store, manifest = origin.open()
    return Start(
        manifest=manifest,
        reader=CheckpointReader(store, origin.folder, manifest),
        is_own=False,
        everything=origin.what == "everything",
    )


def _join() -> RankGroup:
    context = ray.train.get_context()
    return RankGroup(
        rank=context.get_world_rank(),
        local_rank=context.get_local_rank(),
        ranks_on_node=context.get_local_world_size(),
        world_size=context.get_world_size(),
        device=_own_gpu() if torch.cuda.is_available() else torch.device("cpu"),
    )


def _own_gpu() -> torch.device:
    """The GPU that Ray gave this rank; the CPU if it was given none."""
    if not ray.get_runtime_context().get_accelerator_ids().get("GPU"):
        return torch.device("cpu")
    device: torch.device = ray.train.torch.get_device()
    torch.cuda.set_device(device)
    return device
