"""Checking the data that a job names: its manifests, its columns, what prepares it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path

from footplate.data.counting import epoch_samples
from footplate.data.manifest import DataManifest, SchemaField, read_manifest
from footplate.errors import DataError, FootplateError, Problem, StoreError
from footplate.runs.definitions import missing_definition, refused_arguments
from footplate.spec import DataPart, Dataset, Job, Pack

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
                problems += _column_problems(f"data.{set_name}", dataset, manifests[name])
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


def _column_problems(where: str, dataset: Dataset, manifest: DataManifest) -> Iterator[Problem]:
    known = {field.name: field for field in manifest.fields}
    for column in dataset.columns or ():
        if column not in known:
            yield Problem(f"{where}.columns", _unknown(column, manifest))
    for key in ("pack", "bucket"):
        section = getattr(dataset, key)
        if section is None:
            continue
        if section.column not in known:
            yield Problem(f"{where}.{key}.column", _unknown(section.column, manifest))
        elif not _is_list_of_numbers(known[section.column]):
            yield Problem(
                f"{where}.{key}.column",
                f"{section.column!r} of {manifest.name} is {known[section.column].type}, "
                "not a list of numbers",
            )
        elif dataset.pack is not None:
            yield from _packing_problems(where, dataset.pack, manifest)


def _packing_problems(where: str, pack: Pack, manifest: DataManifest) -> Iterator[Problem]:
    try:
        epoch_samples([manifest], pack)
    except DataError as error:
        yield Problem(f"{where}.pack.length", one_line(error))


def _unknown(column: str, manifest: DataManifest) -> str:
    known = [field.name for field in manifest.fields]
    close = difflib.get_close_matches(column, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(known)}"
    return f"{manifest.name} has no column {column!r}; {hint}"


def _is_list_of_numbers(field: SchemaField) -> bool:
    kinds = ("int", "uint", "float", "double", "halffloat")
    inner = field.type.partition("<")[2].partition(": ")[2]
    return field.type.startswith(("list<", "large_list<")) and inner.startswith(kinds)


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
