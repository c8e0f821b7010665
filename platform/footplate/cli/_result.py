"""What a run came to: the table at its end, and the message if it failed."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import click

from footplate.checkpoints.space import checkpoint_sizes
from footplate.cli._sizes import size
from footplate.runs import RunOutcome
from footplate.runs.text import duration
from footplate.spec import Job
from footplate.store import open_store
from footplate.tracking import open_hint, tracking_uri

__all__ = ["print_failure", "print_outcome"]


def print_outcome(job: Job, outcome: RunOutcome, spec: str) -> None:
    """
    Print the table of results.

    Args:
        spec: The spec file, for the commands that are named.
    """
    rows = _rows(job, outcome, spec)
    width = max(len(label) for label, _ in rows) + 2
    # Not wrapped: paths and commands are there to be copied.
    for label, value in rows:
        click.echo(click.style(label.ljust(width), bold=True) + value)


def print_failure(outcome: RunOutcome, *, debug: bool) -> None:
    """
    Print what went wrong.

    Args:
        debug: Also the end of the log.
    """
    failure = outcome.result.failure
    assert failure is not None
    if failure.trace:
        click.echo(f"\n{failure.trace.rstrip()}", err=True)
    click.echo(f"\nfootplate: {failure.message}", err=True)
    if failure.hint:
        click.echo(failure.hint, err=True)
    if debug:
        click.echo(f"\n{outcome.log}:\n{outcome.log.read_text(errors='replace')}", err=True)


def _rows(job: Job, outcome: RunOutcome, spec: str) -> list[tuple[str, str]]:
    result = outcome.result
    store = open_store(job)
    sizes = checkpoint_sizes(store, outcome.run)
    saved = sizes.listed().committed
    taken = size(sum(sizes.bytes[name] for name in saved))
    checkpoints = f"{len(saved)}, {taken}; newest {saved[-1]}" if saved else "none yet"
    if job.command is not None:
        checkpoints = result.checkpoint or "none of Ray Train's"
    return [
        ("run", f"{outcome.run.name} {outcome.run.uid}, attempt {outcome.attempt}"),
        ("status", _status(outcome, saved[-1].step if saved else 0)),
        *((name, f"{value:.4f}") for name, value in sorted(result.metrics.items())),
        ("checkpoints", checkpoints),
        ("", store.locate(outcome.run.checkpoints)),
        *_tracking(job, outcome, spec),
        ("log", str(outcome.log)),
    ]


def _status(outcome: RunOutcome, resume_step: int) -> str:
    result = outcome.result
    if result.status == "succeeded":
        time = duration(result.ended - result.started)
        did = f": {result.steps} steps, {result.epochs:g} epochs" if result.steps else ""
        return f"succeeded{did}; this attempt {time}"
    from_where = f"go on from step {resume_step}" if resume_step else "start over"
    word = "stopped" if result.status == "interrupted" else "failed"
    return f"{word} after step {result.steps}; run the same command to {from_where}"


def _tracking(job: Job, outcome: RunOutcome, spec: str) -> list[tuple[str, str]]:
    uri = tracking_uri(job)
    if uri is None:
        return [("MLflow", "not used: the spec has no tracking.uri")]
    tracking = outcome.result.tracking
    if not tracking.get("complete"):
        why = tracking.get("error") or "the driver ended before it could tell"
        return [
            ("MLflow", f"incomplete: {why}"),
            ("", f"send the rest: footplate tracking sync {shlex.quote(spec)}"),
        ]
    url = tracking.get("url")
    hint = open_hint(uri, url if isinstance(url, str) else None)
    return [
        ("MLflow", f"run {tracking['run_id']} in experiment {tracking['experiment']}"),
        ("", f"open: {_runnable(hint)}"),
    ]


def _runnable(hint: str) -> str:
    """The command with the folder of this environment, where that is not on the path."""
    beside = Path(sys.executable).with_name("mlflow")
    if hint.startswith("mlflow ") and shutil.which("mlflow") is None and beside.exists():
        return f"{beside}{hint.removeprefix('mlflow')}"
    return hint
