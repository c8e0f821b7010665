"""``footplate history``: the attempts of a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Unpack

import click

from footplate.cli._store_place import RunPlace, run_options

if TYPE_CHECKING:
    from footplate.runs.attempts import AttemptSummary

__all__ = ["command"]


@click.command("history")
@click.argument("name")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@run_options
def command(name: str, output: str, **place: Unpack[RunPlace]) -> None:
    """
    Say of each attempt of the run NAME why it ended, and what that cost.

    REPEATED are steps that were made again by the next attempt, for they had not been saved. PAUSE
    is the time until that began. An attempt that is open goes on, or was killed and has no
    successor yet: `footplate status` knows which.

    Exit codes: 0 listed, 5 there is no such run, 13 the store fails.
    """
    from footplate.cli._output import print_json, print_note, print_table
    from footplate.runs.attempts import read_attempts
    from footplate.runs.place import find_place

    found = find_place(name, **place)
    attempts = read_attempts(found.store, found.run, found.past.claims)
    if output == "json":
        print_json([each.to_dict() for each in attempts])
        return
    if not attempts:
        click.echo(f"{found.run.name} {found.run.uid} has no attempt yet", err=True)
        return
    columns = ["ATTEMPT", "BEGAN", "TOOK", "STEPS", "REPEATED", "PAUSE", "ENDED"]
    print_table(columns, [_row(each, time.time()) for each in attempts])
    print_note(
        f"of {found.run.namespace}/{found.run.name}, in {found.store.locate(found.run.root)}"
    )


def _row(attempt: AttemptSummary, now: float) -> list[str]:
    from footplate.runs.text import duration

    cost = attempt.cost
    ended = f"{attempt.ending}: {attempt.reason}" if attempt.reason else attempt.ending
    return [
        str(attempt.attempt),
        f"{duration(now - attempt.began)} ago",
        duration(attempt.heard - attempt.began),
        f"{attempt.first_step} to {attempt.last_step}",
        str(cost.repeated_steps) if cost else "-",
        duration(cost.pause_s) if cost else "-",
        ended,
    ]
