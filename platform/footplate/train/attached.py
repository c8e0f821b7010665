"""What a script with its own trainer calls once, to be a run like any other."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pyarrow.fs
from ray.train import Checkpoint, LoggingConfig, RunConfig, ScalingConfig

from footplate.errors import UserCodeError
from footplate.spec import Job
from footplate.store import RunRecord, Store, open_store
from footplate.train.command import ATTEMPT, JOB_FILE, MLFLOW_RUN, RANK_RESOURCES
from footplate.train.own_checkpoints import TRAINER_NAME, newest_own_checkpoint

__all__ = ["AttachedRun", "attach"]

_HANDED_ON = ("FOOTPLATE_", "MLFLOW_")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttachedRun:
    """
    The run that a script is; made by :func:`attach`.

    Attributes:
        uid: The Job UID.
        attempt: Number of this attempt, from 1.
        job: What the spec says.
        storage_path: Of a folder for this attempt alone, in the form that Ray Train takes.
        storage_filesystem: What the path is of; None if the path says that itself.
        rank_resources: What Ray is to reserve for each rank, so that the pods share them evenly.
        resume_from: The newest complete checkpoint that an earlier attempt's trainer left, or
            None.
    """

    uid: str
    attempt: int
    job: Job
    storage_path: str
    storage_filesystem: pyarrow.fs.FileSystem | None
    rank_resources: Mapping[str, float]
    resume_from: Checkpoint | None

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.job.name

    @property
    def params(self) -> Mapping[str, Any]:
        """The user's own hyperparameters: ``[params]`` of the spec."""
        return self.job.params

    def scaling_config(self, **settings: Any) -> ScalingConfig:
        """
        The ``ScalingConfig`` of a trainer with the ranks that the spec says.

        Args:
            settings: Of ``ray.train.ScalingConfig``, but for those that say how many.
        """
        workers = self.job.workers
        return ScalingConfig(
            num_workers=workers.world_size,
            use_gpu=workers.gpus > 0,
            resources_per_worker=dict(self.rank_resources),
            **settings,
        )

    def run_config(self, **settings: Any) -> RunConfig:
        """
        The ``RunConfig`` of a trainer whose checkpoints a later attempt finds.

        Ray's own log is at warnings unless something else is said: it has a line for every
        report of every rank.

        Args:
            settings: Of ``ray.train.RunConfig``, but for those that say where.
        """
        environment = {
            name: value for name, value in os.environ.items() if name.startswith(_HANDED_ON)
        }
        if MLFLOW_RUN in environment:
            environment["MLFLOW_RUN_ID"] = environment[MLFLOW_RUN]
        own = dict(settings.pop("worker_runtime_env", None) or {})
        own["env_vars"] = {**environment, **own.get("env_vars", {})}
        settings.setdefault("logging_config", LoggingConfig(log_level="WARNING"))
        return RunConfig(
            name=TRAINER_NAME,
            storage_path=self.storage_path,
            storage_filesystem=self.storage_filesystem,
            worker_runtime_env=own,
            **settings,
        )


def attach() -> AttachedRun:
    """
    The run that this process works on, as its driver says.

    ::

        run = footplate.train.attach()
        trainer = TorchTrainer(
            train,
            train_loop_config={**run.params, "resume_from": run.resume_from},
            scaling_config=run.scaling_config(),
            run_config=run.run_config(),
        )

    ``mlflow.start_run()`` goes on with the MLflow run of the Job UID, in the script and in the
    ranks of such a trainer.

    Raises:
        UserCodeError: If no driver has started this process.
        StoreError: If the store does not tell what there is to go on from.
    """
    file, number = os.environ.get(JOB_FILE), os.environ.get(ATTEMPT)
    if file is None or number is None:
        raise UserCodeError(
            "this process is not part of a run",
            "Name the script as command in a spec, and start it by: footplate run SPEC",
        )
    record = RunRecord.model_validate_json(Path(file).read_bytes())
    job = Job.from_dict(record.spec, folder=Path(record.folder or "."), source=record.name)
    store, attempt = open_store(job), int(number)
    checkpoint = _newest(store, record, before=attempt)
    filesystem, path = _in_ray(store, record.paths.attempt(attempt).ray)
    start = f"goes on from {store.locate(checkpoint)}" if checkpoint else "begins"
    click.echo(f"attempt {attempt} of {job.name} {record.uid} {start}")
    return AttachedRun(
        uid=record.uid,
        attempt=attempt,
        job=job,
        storage_path=path,
        storage_filesystem=filesystem,
        rank_resources=json.loads(os.environ.get(RANK_RESOURCES, "{}")),
        resume_from=_checkpoint(store, checkpoint) if checkpoint else None,
    )


def _newest(store: Store, record: RunRecord, *, before: int) -> str | None:
    for attempt in range(before - 1, 0, -1):
        if found := newest_own_checkpoint(store, record.paths.attempt(attempt)):
            return found
    return None


def _checkpoint(store: Store, folder: str) -> Checkpoint:
    filesystem, path = _in_ray(store, folder)
    return Checkpoint(path, filesystem=filesystem)


def _in_ray(store: Store, path: str) -> tuple[pyarrow.fs.FileSystem | None, str]:
    """A path of the store as Ray takes it: with the file system, where its URI does not say all."""
    place = store.locate(path)
    if not place.startswith("s3://"):
        return None, place
    endpoint = store.endpoint or os.environ.get("AWS_ENDPOINT_URL")
    address = urlsplit(endpoint or "https://")
    filesystem = pyarrow.fs.S3FileSystem(
        endpoint_override=address.netloc or None,
        scheme=address.scheme,
        region=store.region or os.environ.get("AWS_REGION") or ("us-east-1" if endpoint else None),
    )
    return filesystem, place.removeprefix("s3://")
