"""
Checking a job together with everything it names, before anything starts.

The spec alone is checked when it is read. Here the code, the data and the runtime are looked at;
no user code is imported or run, and nothing is written.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from footplate import render
from footplate.data.manifest import DataManifest, read_manifest
from footplate.data.schedule import Schedule, too_few_rows, training_schedule
from footplate.errors import DataError, FootplateError, Problem, SpecError, StoreError
from footplate.runs.definitions import (
    missing_definition,
    missing_module,
    module_file,
    refused_arguments,
)
from footplate.runtimes import find_runtime
from footplate.spec import Dataset, Job
from footplate.spec.lines import key_lines, line_of

__all__ = ["Findings", "check", "examine", "find_problems"]

_TRAINING_SET = "train"
_Lines = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """
    What was found out about a job.

    Attributes:
        problems: Everything wrong, in the order of the file where it is known.
        manifests: Name of each data set to its manifest, of those that have a readable one.
        steps: Optimizer steps of the whole run, if they can be known before it starts.
    """

    problems: tuple[Problem, ...]
    manifests: Mapping[str, DataManifest]
    steps: int | None


def check(job: Job, source: str) -> None:
    """
    Refuse a job that cannot run.

    Args:
        job: Any job.
        source: The file it was read from, whose lines the problems then name, or another name.

    Raises:
        SpecError: With all problems.
    """
    if problems := find_problems(job, _lines_of(source)):
        raise SpecError(source, problems)


def find_problems(job: Job, lines: _Lines | None = None) -> tuple[Problem, ...]:
    """
    Everything that would keep a job from running.

    Args:
        job: Any job.
        lines: Where the keys stand, as :func:`footplate.spec.lines.key_lines` says.
    """
    return examine(job, lines).problems


def examine(job: Job, lines: _Lines | None = None) -> Findings:
    """Look at a job and at everything that it names; the arguments of :func:`find_problems`."""
    manifests, problems = _read_manifests(job)
    problems += _code_problems(job)
    problems += _runtime_problems(job)
    if job.entrypoint is not None:
        problems += _training_set_problems(job, manifests.get(_TRAINING_SET))
    located = [_located(problem, lines or {}) for problem in problems]
    located.sort(key=lambda problem: problem.line or 0)
    steps = None if problems else _steps(job, manifests.get(_TRAINING_SET))
    return Findings(problems=tuple(located), manifests=manifests, steps=steps)


def _lines_of(source: str) -> _Lines:
    try:
        return key_lines(Path(source).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return {}


def _located(problem: Problem, lines: _Lines) -> Problem:
    return problem._replace(line=line_of(lines, tuple(problem.where.split("."))))


def _code_problems(job: Job) -> Iterator[Problem]:
    folder = Path(job.path(job.code))
    if not folder.is_dir():
        yield Problem("code", f"{folder} is no folder")
    elif job.entrypoint is not None:
        yield from _entrypoint_problems(job.entrypoint, folder)
    else:
        yield from _command_problems(job.command or (), folder)


def _entrypoint_problems(entrypoint: str, folder: Path) -> Iterator[Problem]:
    module, _, function = entrypoint.partition(":")
    try:
        file = module_file(module, folder)
    except ModuleNotFoundError:
        yield Problem("entrypoint", missing_module(module, folder))
        return
    if file is not None and (what := missing_definition(file, function)):
        yield Problem("entrypoint", what)


def _command_problems(command: Sequence[str], folder: Path) -> Iterator[Problem]:
    """A script that is not there; what else a command may be cannot be known here."""
    script = next((argument for argument in command if argument.endswith(".py")), None)
    if script is not None and not (folder / script).is_file():
        scripts = [file.name for file in folder.glob("*.py")]
        close = difflib.get_close_matches(script, scripts, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        yield Problem("command", f"there is no file {folder / script}{hint}")


def _runtime_problems(job: Job) -> Iterator[Problem]:
    try:
        runtime = find_runtime(job.runtime)
    except FootplateError as error:
        yield Problem("runtime", _one_line(error))
    else:
        yield from render.find_problems(job, runtime)


def _read_manifests(job: Job) -> tuple[dict[str, DataManifest], list[Problem]]:
    manifests: dict[str, DataManifest] = {}
    problems: list[Problem] = []
    for name, dataset in job.data.items():
        if dataset.prepare is not None:
            problems += _prepare_problems(job, f"data.{name}", dataset.prepare, dataset.options)
            continue
        try:
            manifests[name] = _read_manifest(job, dataset)
        except (DataError, StoreError) as error:
            problems.append(Problem(f"data.{name}.manifest", _one_line(error)))
        else:
            problems += _column_problems(f"data.{name}.columns", dataset, manifests[name])
    return manifests, problems


def _read_manifest(job: Job, dataset: Dataset) -> DataManifest:
    assert dataset.manifest is not None
    uri = job.path(dataset.manifest)
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
    known = [field.name for field in manifest.fields]
    for column in dataset.columns or ():
        if column not in known:
            close = difflib.get_close_matches(column, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(known)}"
            yield Problem(where, f"{manifest.name} has no column {column!r}; {hint}")


def _training_set_problems(job: Job, manifest: DataManifest | None) -> Iterator[Problem]:
    if _TRAINING_SET not in job.data:
        yield Problem(f"data.{_TRAINING_SET}", "is required: what is trained on")
    elif manifest is not None and (what := too_few_rows(_schedule(job, manifest), manifest.name)):
        yield Problem(f"data.{_TRAINING_SET}.batch_size", what)


def _schedule(job: Job, manifest: DataManifest) -> Schedule:
    return training_schedule(job, manifest.rows, world_size=job.workers.world_size)


def _steps(job: Job, manifest: DataManifest | None) -> int | None:
    if job.limits is None:
        return None
    if manifest is not None:
        return _schedule(job, manifest).total_steps()
    # With both limits and data that is not there yet, epochs may end the run earlier.
    return job.limits.max_steps if job.limits.epochs is None else None


def _one_line(error: FootplateError) -> str:
    return "; ".join(part.strip() for part in str(error).splitlines())
