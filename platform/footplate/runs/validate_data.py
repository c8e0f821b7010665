"""Checking the data that a job names: its manifests, its columns, what prepares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from footplate.data.column_problems import column_problems
from footplate.data.manifest import DataManifest, read_manifest
from footplate.errors import DataError, FootplateError, Problem, StoreError
from footplate.runs.definitions import missing_definition, refused_arguments
from footplate.spec import DataPart, Dataset, Job

__all__ = ["one_line", "read_data"]


def read_data(job: Job) -> tuple[dict[str, DataManifest], list[Problem]]:
    """
    The manifests that can be read, by the names of the parts, and everything wrong.

    What a function prepares is not there yet: of that only the function is looked at.
    """
    manifests: dict[str, DataManifest] = {}
    problems: list[Problem] = []
    for set_name, dataset in job.data.items():
        for name, part in dataset.named_parts(set_name).items():
            if part.prepare is not None:
                problems += _prepare_problems(job, f"data.{name}", part.prepare, part.options)
                continue
            try:
                manifests[name] = _read(job, part)
            except (DataError, StoreError) as error:
                problems.append(Problem(f"data.{name}.manifest", one_line(error)))
            else:
                problems += column_problems(f"data.{set_name}", dataset, manifests[name])
        problems += _mixture_problems(set_name, dataset, manifests)
    return manifests, problems


def _read(job: Job, part: DataPart) -> DataManifest:
    assert part.manifest is not None
    uri = job.path(part.manifest)
    return read_manifest(uri, endpoint=job.store.endpoint, region=job.store.region)[0]


def _prepare_problems(
    job: Job, where: str, prepare: str, options: Mapping[str, object]
) -> Iterator[Problem]:
    path, _, function = prepare.rpartition(":")
    file = Path(job.path(path))
    if not file.is_file():
        yield Problem(f"{where}.prepare", f"there is no file {file}")
    elif what := missing_definition(file, function):
        yield Problem(f"{where}.prepare", what)
    else:
        for option, refusal in refused_arguments(file, function, options).items():
            yield Problem(f"{where}.options.{option}", refusal)


def _mixture_problems(
    set_name: str, dataset: Dataset, manifests: Mapping[str, DataManifest]
) -> Iterator[Problem]:
    """Parts of different schemas cannot be one stream."""
    read = [(name, manifests[name]) for name in dataset.named_parts(set_name) if name in manifests]
    for name, manifest in read[1:]:
        if _columns(manifest) != _columns(read[0][1]):
            yield Problem(
                f"data.{name}.manifest",
                f"{manifest.name} has other columns than {read[0][1].name}: "
                f"{_columns(manifest)}, not {_columns(read[0][1])}",
            )


def _columns(manifest: DataManifest) -> str:
    return ", ".join(f"{field.name} {field.form}" for field in manifest.fields)


def one_line(error: FootplateError) -> str:
    """An error as part of a problem."""
    return "; ".join(part.strip() for part in str(error).splitlines())
