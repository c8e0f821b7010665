"""What a run came to: the table at its end, and the message if it failed."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from footplate.checkpoints import committed
from footplate.cli._progress import duration
from footplate.runs import RunOutcome
from footplate.spec import Job
from footplate.store import open_store
from footplate.tracking import open_hint, tracking_uri

__all__ = ["print_failure", "print_outcome"]


def print_outcome(job: Job, outcome: RunOutcome) -> None:
    """Print the table of results."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in _rows(job, outcome):
        table.add_row(label, value)
    Console(highlight=False, markup=False, emoji=False).print(table)


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


def _rows(job: Job, outcome: RunOutcome) -> list[tuple[str, str]]:
    result = outcome.result
    rows = [
        ("run", f"{outcome.run.name} {outcome.run.uid}, attempt {outcome.attempt}"),
        ("status", _status(outcome)),
    ]
    rows += [(name, f"{value:.4f}") for name, value in sorted(result.metrics.items())]
    rows.append(("checkpoints", _checkpoints(job, outcome)))
    rows.append(("MLflow", _tracking(job, outcome)))
    rows.append(("log", str(outcome.log)))
    return rows


def _status(outcome: RunOutcome) -> str:
    result = outcome.result
    time = duration(result.ended - result.started)
    if result.status == "succeeded":
        return f"succeeded: {result.steps} steps, {result.epochs:g} epochs; this attempt {time}"
    again = "run the same command to go on"
    if result.status == "interrupted":
        return f"stopped after step {result.steps}; {again}"
    return f"failed after step {result.steps}"


def _checkpoints(job: Job, outcome: RunOutcome) -> str:
    store = open_store(job)
    names = committed(store, outcome.run)
    where = store.locate(outcome.run.checkpoints)
    return f"{len(names)} in {where}; newest {names[-1]}" if names else "none yet"


def _tracking(job: Job, outcome: RunOutcome) -> str:
    uri = tracking_uri(job)
    if uri is None:
        return "not used: the spec has no tracking.uri"
    tracking = outcome.result.tracking
    url = tracking.get("url")
    hint = open_hint(uri, url if isinstance(url, str) else None)
    if not tracking.get("complete"):
        why = tracking.get("error") or "the driver ended before it could tell"
        return f"incomplete: {why}; send the rest with: footplate tracking sync SPEC"
    return f"run {tracking['run_id']} in experiment {tracking['experiment']}; open: {hint}"
