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
from footplate.data.counting import epoch_samples
from footplate.data.manifest import DataManifest
from footplate.data.schedule import Schedule, too_few_rows, training_schedule
from footplate.errors import DataError, FootplateError, Problem, SpecError
from footplate.runs.definitions import (
    missing_definition,
    missing_module,
    module_file,
)
from footplate.runs.validate_data import one_line, read_data
from footplate.runtimes import find_runtime
from footplate.spec import Job
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
    manifests, problems = read_data(job)
    problems += _code_problems(job)
    problems += _runtime_problems(job)
    if job.entrypoint is not None:
        called = " and ".join(manifest.name for manifest in manifests.values())
        problems += _training_set_problems(job, _rows(job, manifests), called)
    located = [_located(problem, lines or {}) for problem in problems]
    located.sort(key=lambda problem: problem.line or 0)
    steps = None if problems else _steps(job, _rows(job, manifests))
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
        yield from _function_problems("entrypoint", job.entrypoint, folder)
        for name, dataset in job.data.items():
            for function in dataset.map:
                yield from _function_problems(f"data.{name}.map", function, folder)
    else:
        yield from _command_problems(job.command or (), folder)


def _function_problems(where: str, reference: str, folder: Path) -> Iterator[Problem]:
    """What is wrong with a ``module:function`` of the user's code."""
    module, _, function = reference.partition(":")
    try:
        file = module_file(module, folder)
    except ModuleNotFoundError:
        yield Problem(where, missing_module(module, folder))
        return
    if file is not None and (what := missing_definition(file, function)):
        yield Problem(where, what)


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
        yield Problem("runtime", one_line(error))
    else:
        yield from render.find_problems(job, runtime)


def _rows(job: Job, manifests: Mapping[str, DataManifest]) -> int | None:
    """Samples of a training epoch, if all of the data is there already."""
    if (dataset := job.data.get(_TRAINING_SET)) is None:
        return None
    parts = [manifests.get(name) for name in dataset.named_parts(_TRAINING_SET)]
    known = [part for part in parts if part is not None]
    try:
        return epoch_samples(known, dataset.pack) if len(known) == len(parts) else None
    except DataError:
        return None  # a problem of its own


def _training_set_problems(job: Job, rows: int | None, called: str) -> Iterator[Problem]:
    if _TRAINING_SET not in job.data:
        yield Problem(f"data.{_TRAINING_SET}", "is required: what is trained on")
    elif rows is not None and (what := too_few_rows(_schedule(job, rows), called)):
        yield Problem(f"data.{_TRAINING_SET}.batch_size", what)


def _schedule(job: Job, rows: int) -> Schedule:
    return training_schedule(job, rows, world_size=job.workers.world_size)


def _steps(job: Job, rows: int | None) -> int | None:
    if job.limits is None:
        return None
    if rows is not None:
        return _schedule(job, rows).total_steps()
    # With both limits and data that is not there yet, epochs may end the run earlier.
    return job.limits.max_steps if job.limits.epochs is None else None
