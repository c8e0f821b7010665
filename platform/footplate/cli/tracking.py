"""``footplate tracking``: what MLflow should know."""

from __future__ import annotations

import dataclasses

import click

from footplate.cli._output import print_json, print_note, print_table
from footplate.errors import Problem, SpecError
from footplate.spec import Job, load
from footplate.store import open_store
from footplate.tracking import (
    experiment_name,
    incomplete_runs,
    open_hint,
    sync,
    tracking_uri,
)

__all__ = ["command"]


@click.group("tracking")
def command() -> None:
    """Bring MLflow up to date with what was recorded."""


@command.command("sync")
@click.argument("spec", type=click.Path())
@click.option("--uid", help="This run only, even if it is complete; left out: all incomplete.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def _sync(spec: str, uid: str | None, overrides: tuple[str, ...], output: str) -> None:
    """Send what MLflow does not have yet of the runs of SPEC, newest run first."""
    job = load(spec, overrides)
    uri = _tracking_uri(job, spec)
    store = open_store(job)
    results = [
        (run.uid, sync(store, run, uri=uri, experiment=experiment_name(job)))
        for run in incomplete_runs(store, job.name, uid=uid)
    ]
    if output == "json":
        print_json([{"uid": uid} | dataclasses.asdict(result) for uid, result in results])
        return
    if not results:
        print_note(f"MLflow has everything of {job.name}")
        return
    rows = [(uid, result.points_sent, result.run_id, result.status) for uid, result in results]
    print_table(("UID", "POINTS SENT", "MLFLOW RUN", "STATE"), rows)
    print_note(f"open: {open_hint(results[0][1].uri, results[0][1].url)}")


def _tracking_uri(job: Job, spec: str) -> str:
    uri = tracking_uri(job)
    if uri is None:
        what = "is not set, and a store in a bucket has no default for it"
        raise SpecError(spec, (Problem("tracking.uri", what),))
    return uri
