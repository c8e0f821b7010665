"""What runs in every training process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch

from footplate.checkpoints import CheckpointManifest
from footplate.checkpoints import read_manifest as read_checkpoint_manifest
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
from footplate.train.sources import cache_folder, data_sources

__all__ = ["RankConfig", "rank_main"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankConfig:
    """
    What a rank is told; plain values, since it travels through Ray.

    Attributes:
        record: The run's record, as JSON.
        attempt: Number of the attempt.
        resume: Name of the checkpoint to go on from, or None.
        data: Name of each data set to its version, as JSON.
        folder: What relative paths of the spec refer to, if the code does not travel.
    """

    record: str
    attempt: int
    resume: str | None
    data: dict[str, str]
    folder: str

    def to_dict(self) -> dict[str, Any]:
        """The form that Ray Train takes."""
        return asdict(self)


def rank_main(values: dict[str, Any]) -> None:
    """Train, on one rank. Reports its own failure before it raises."""
    config = RankConfig(**values)
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
        context = progress[0] if progress else None
        if context is not None:
            context.abandon()
        failure = failure_of(
            error,
            rank=group.rank,
            step=context.step_number if context else None,
            folder=Path(job.path(job.code)),
        )
        report_failure(store, run.attempt(config.attempt), failure)
        raise


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
        resume=_resume_point(config, store, run),
    )
    progress.append(context)
    assert job.entrypoint is not None
    function = load_function(job.entrypoint, Path(job.path(job.code)))
    randomness.seed_everything(job.seed)
    stopped = False
    try:
        with labelled_output(group.rank):
            function(context)
        context.finish()
    except StopTraining:
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


def _resume_point(config: RankConfig, store: Store, run: RunPaths) -> CheckpointManifest | None:
    """
    The checkpoint that the attempt claims to start from.

    Raises:
        CheckpointGoneError: If it is gone: starting over instead would break the claim.
    """
    if config.resume is None:
        return None
    name = CheckpointName.parse(config.resume)
    manifest = read_checkpoint_manifest(store, run, name) if name else None
    if manifest is None:
        raise CheckpointGoneError(
            f"checkpoint {config.resume} is gone since attempt {config.attempt} claimed to start "
            "from it",
            "Run again: the next attempt starts from what is there then.",
        )
    return manifest


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
