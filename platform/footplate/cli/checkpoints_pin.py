"""``footplate checkpoints pin``: keep a checkpoint."""

from __future__ import annotations

from typing import Unpack

import click

from footplate.cli._store_place import RunPlace, run_options

__all__ = ["command"]


@click.command("pin", short_help="Let one stay, whatever checkpoint.keep says.")
@click.argument("name")
@click.argument("step", required=False)
@click.option("--as", "pin_name", metavar="PIN", help="Name of the pin; left out: step-STEP.")
@run_options
def command(name: str, step: str | None, pin_name: str | None, **place: Unpack[RunPlace]) -> None:
    """
    Let the checkpoint STEP of the run NAME stay, whatever `checkpoint.keep` says.

    Exit codes: 0 pinned, 5 there is no such run, 13 the store fails, 14 there is no such
    checkpoint, or the pin holds another one.
    """
    from footplate.runs.checkpoints import Checkpoints
    from footplate.runs.place import find_place

    found = find_place(name, **place)
    checkpoints = Checkpoints(found.store, found.past)
    checkpoint = checkpoints.find(step)
    pinned = checkpoints.pin(checkpoint, pin_name)
    click.echo(f"{checkpoint.name} of {found.run.name} is pinned as {pinned}")
