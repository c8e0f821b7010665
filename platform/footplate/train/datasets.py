"""Settling which data a run reads: once, for all of its attempts."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from footplate.data import DataManifest, read_manifest, verify_files
from footplate.data.schedule import too_few_rows, training_schedule
from footplate.errors import (
    DataError,
    FootplateError,
    ObjectExistsError,
    Problem,
    SpecError,
    UserCodeError,
)
from footplate.spec import Dataset, Job
from footplate.store import (
    DataVersion,
    RunData,
    RunPaths,
    Store,
    read_record,
    read_record_if_there,
    to_json,
)
from footplate.train.entrypoint import user_trace

__all__ = ["settle_data"]


def settle_data(job: Job, store: Store, run: RunPaths) -> dict[str, DataVersion]:
    """
    The data sets of a run, prepared if need be, and compared with their manifests.

    What the first attempt read is written down, and every later one reads exactly that.

    Raises:
        DataError: If a data set is missing, changed or malformed.
        UserCodeError: If preparing one fails.
        SpecError: If the training data is not enough for a single step.
    """
    settled = read_record_if_there(store, run.data, RunData)
    sets = settled.sets if settled else {name: _locate(job, name, store) for name in job.data}
    for version in sets.values():
        manifest, files = _read(job, version.manifest)
        if manifest.version != version.version:
            raise DataError(
                f"{version.manifest} has version {manifest.version}; this run began with "
                f"{version.version}",
                "Restore that data, or start a new run with --fresh.",
            )
        verify_files(manifest, files)
    _check_a_step_fits(job, sets)
    if settled is None:
        try:
            store.create(run.data, to_json(RunData(sets=sets)))
        except ObjectExistsError:
            return read_record(store, run.data, RunData).sets
    return sets


def _check_a_step_fits(job: Job, sets: Mapping[str, DataVersion]) -> None:
    """Refuse what would train nothing, before anything is started for it."""
    if "train" not in sets:
        return
    schedule = training_schedule(job, sets["train"].rows, world_size=job.workers.world_size)
    if what := too_few_rows(schedule, "the data set"):
        raise SpecError(job.name, (Problem("data.train.batch_size", what),))


def _locate(job: Job, name: str, store: Store) -> DataVersion:
    dataset = job.data[name]
    uri = job.path(dataset.manifest) if dataset.manifest else _prepare(job, name, dataset, store)
    manifest, _ = _read(job, uri)
    return DataVersion(manifest=uri, version=manifest.version, rows=manifest.rows)


def _read(job: Job, uri: str) -> tuple[DataManifest, Store]:
    return read_manifest(uri, endpoint=job.store.endpoint, region=job.store.region)


def _prepare(job: Job, name: str, dataset: Dataset, store: Store) -> str:
    """Let the user's function make a data set (or find the one it made); where its manifest is."""
    assert dataset.prepare is not None
    file_name, _, function_name = dataset.prepare.rpartition(":")
    file = Path(job.path(file_name))
    function = _load(file, function_name)
    if store.folder is not None:
        return _made(function, store.folder.parent / "datasets", file, name, dataset)
    with tempfile.TemporaryDirectory(prefix="footplate-data-") as folder:
        return _upload(Path(_made(function, Path(folder), file, name, dataset)), store)


def _made(
    function: Callable[..., Any], folder: Path, file: Path, name: str, dataset: Dataset
) -> str:
    try:
        manifest = function(folder, **dataset.options)
    except FootplateError:
        raise
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise UserCodeError(
            f"preparing data.{name} failed: {type(error).__name__}: {error}",
            f"The function is {file}:{function.__name__}.",
            user_trace(error, file.parent),
        ) from error
    if not isinstance(manifest, Path):
        raise UserCodeError(
            f"{file}:{function.__name__} returned {manifest!r}, not the path of a manifest",
            "Return what footplate.data.build.build_dataset returns.",
        )
    return str(manifest.resolve())


def _load(file: Path, function_name: str) -> Callable[..., Any]:
    module_spec = importlib.util.spec_from_file_location(f"footplate_prepare_{file.stem}", file)
    if module_spec is None or module_spec.loader is None or not file.is_file():
        raise DataError(f"there is no {file} to prepare the data with")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # where dataclasses and pickle look it up
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise UserCodeError(
            f"{file} cannot be imported: {type(error).__name__}: {error}",
            trace=user_trace(error, file.parent),
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UserCodeError(f"{file} has no function {function_name!r}")
    found: Callable[..., Any] = function
    return found


def _upload(manifest_file: Path, store: Store) -> str:
    """Copy a data set into the store, where other nodes see it; the manifest last."""
    folder = f"datasets/{manifest_file.parent.name}"
    manifest, files = read_manifest(str(manifest_file))
    for file in manifest.files:
        if store.size(f"{folder}/{file.path}") != file.size:
            store.put(f"{folder}/{file.path}", files.get(file.path))
    store.put(f"{folder}/{manifest_file.name}", manifest.to_json())
    return store.locate(f"{folder}/{manifest_file.name}")
