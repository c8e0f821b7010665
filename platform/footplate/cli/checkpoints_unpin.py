"""``footplate checkpoints unpin``: take a pin away."""

from __future__ import annotations

from typing import Unpack

import click

from footplate.cli._store_place import RunPlace, run_options

__all__ = ["command"]


@click.command("unpin", short_help="Take a pin away.")
@click.argument("name")
@click.argument("step", required=False)
@click.option("--as", "pin_name", metavar="PIN", help="That pin alone; left out: all on STEP.")
@run_options
def command(name: str, step: str | None, pin_name: str | None, **place: Unpack[RunPlace]) -> None:
    """
    Take the pins of the checkpoint STEP of the run NAME away, or one pin by its name.

    The next checkpoint that is saved decides whether it stays.

    Exit codes: 0 done, 5 there is no such run, 13 the store fails, 14 there is no such checkpoint
    or pin.
    """
    from footplate.runs.checkpoints import Checkpoints
    from footplate.runs.place import find_place

    if step is None and pin_name is None:
        raise click.UsageError("say what is unpinned: STEP, or --as PIN")
    found = find_place(name, **place)
    taken = Checkpoints(found.store, found.past).unpin(step, pin_name)
    click.echo(f"{found.run.name}: {', '.join(taken)} taken away")
