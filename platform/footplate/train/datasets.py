"""Settling which data a run reads: once, for all of its attempts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from footplate.data import DataManifest, read_manifest, verify_files
from footplate.data.column_problems import column_problems
from footplate.data.counting import epoch_samples
from footplate.data.prepare import prepare
from footplate.data.schedule import too_few_rows, training_schedule
from footplate.errors import (
    DataError,
    FootplateError,
    ObjectExistsError,
    Problem,
    SpecError,
)
from footplate.spec import DataPart, Job
from footplate.store import (
    DataVersion,
    RunData,
    RunPaths,
    Store,
    read_record,
    read_record_if_there,
    to_json,
)

__all__ = ["settle_data"]


def settle_data(
    job: Job, store: Store, run: RunPaths, *, ray_address: str = "local"
) -> dict[str, DataVersion]:
    """
    The data sets of a run, prepared if need be, and compared with their manifests.

    What the first attempt read is written down, and every later one reads exactly that, though it
    may lie elsewhere by now.

    Args:
        ray_address: Of the Ray that prepares data; ``local`` starts one where it is needed.

    Raises:
        DataError: If a data set is missing, changed or malformed.
        UserCodeError: If preparing one fails.
        SpecError: If the training data is not enough for a single step, or has not the columns
            that the job asks for.
    """
    settled = read_record_if_there(store, run.data, RunData)
    found: dict[str, _Found] = {}
    for name, part in job.data_parts.items():
        version = settled.sets[name] if settled else None
        found[name] = _found(job, part, version, store, ray_address)
    sets = {name: each.version for name, each in found.items()}
    manifests = {name: each.manifest for name, each in found.items()}
    for data, dataset in job.data.items():
        skip_rows = dataset.skip_rows  # of all of its parts together
        for name in dataset.named_parts(data):
            skip_rows -= verify_files(manifests[name], found[name].files, skip_rows=skip_rows)
    _check_columns(job, manifests)
    _check_a_step_fits(job, manifests)
    if settled is None:
        try:
            store.create(run.data, to_json(RunData(sets=sets)))
        except ObjectExistsError:
            return read_record(store, run.data, RunData).sets
    return sets


def _check_columns(job: Job, manifests: Mapping[str, DataManifest]) -> None:
    """What is prepared only now could not be looked at when the job was submitted."""
    problems = [
        problem
        for name, dataset in job.data.items()
        for part in dataset.named_parts(name)
        for problem in column_problems(f"data.{name}", dataset, manifests[part])
    ]
    if problems:
        raise SpecError(job.name, tuple(dict.fromkeys(problems)))


def _check_a_step_fits(job: Job, manifests: Mapping[str, DataManifest]) -> None:
    """Refuse what would train nothing, before anything is started for it."""
    if (dataset := job.data.get("train")) is None:
        return
    parts = [manifests[name] for name in dataset.named_parts("train")]
    rows = epoch_samples(parts, dataset.pack)
    schedule = training_schedule(job, rows, world_size=job.workers.world_size)
    if what := too_few_rows(schedule, "the data set"):
        raise SpecError(job.name, (Problem("data.train.batch_size", what),))


class _Found(NamedTuple):
    """A data set, and the store of the folder that its files are relative to."""

    version: DataVersion
    manifest: DataManifest
    files: Store


def _found(
    job: Job, part: DataPart, version: DataVersion | None, store: Store, ray_address: str
) -> _Found:
    """What a run has begun with, where it was or where the job's folder has taken it."""
    if version is None:
        return _located(job, part, store, ray_address)
    try:
        manifest, files = _read(job, version.manifest)
    except DataError:
        with suppress(FootplateError):
            here = _located(job, part, store, ray_address)
            if here.version.version == version.version:
                return here
        raise
    if manifest.version != version.version:
        raise DataError(
            f"{version.manifest} has version {manifest.version}; this run began with "
            f"{version.version}",
            "Restore that data, or start a new run with --fresh.",
        )
    return _Found(version, manifest, files)


def _located(job: Job, part: DataPart, store: Store, ray_address: str) -> _Found:
    """What the job names, prepared if need be."""
    uri = job.path(part.manifest) if part.manifest else _prepare(job, part, store, ray_address)
    manifest, files = _read(job, uri)
    version = DataVersion(manifest=uri, version=manifest.version, rows=manifest.rows)
    return _Found(version, manifest, files)


def _read(job: Job, uri: str) -> tuple[DataManifest, Store]:
    return read_manifest(uri, endpoint=job.store.endpoint, region=job.store.region)


def _prepare(job: Job, part: DataPart, store: Store, ray_address: str) -> str:
    """Let the user's function make a data set (or find the one it made); where its manifest is."""
    assert part.prepare is not None
    file, _, function = part.prepare.rpartition(":")
    return prepare(
        f"{job.path(file)}:{function}", part.options, _data_sets(store), ray_address=ray_address
    )


def _data_sets(store: Store) -> Store:
    """Where data sets are kept: beside the runs of a folder, below those of a bucket."""
    beside = store.locate("datasets") if store.folder is None else store.folder.parent / "datasets"
    return Store(str(beside), endpoint=store.endpoint, region=store.region)
