"""``footplate checkpoints delete``: remove checkpoints."""

from __future__ import annotations

from typing import Unpack

import click

from footplate.cli._store_place import RunPlace, run_options

__all__ = ["command"]


@click.command("delete", short_help="Remove some for good.")
@click.argument("name")
@click.argument("steps", nargs=-1, required=True, metavar="STEP...")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@run_options
def command(name: str, steps: tuple[str, ...], yes: bool, **place: Unpack[RunPlace]) -> None:
    """
    Remove checkpoints of the run NAME for good.

    One that is pinned is refused, and of a run that may still be at work the one it would go on
    from; then nothing is removed.

    Exit codes: 0 removed, 1 not confirmed, 4 or 17 the run begins to work meanwhile, 5 there is no
    such run, 13 the store fails, 14 there is no such checkpoint, or it is refused.
    """
    from footplate.cli._sizes import size
    from footplate.runs.checkpoints import Checkpoints
    from footplate.runs.place import find_place

    found = find_place(name, **place)
    checkpoints = Checkpoints(found.store, found.past)
    chosen = [checkpoints.find(step) for step in dict.fromkeys(steps)]
    for checkpoint in chosen:
        checkpoints.check_deletable(checkpoint)
    if not yes:
        for checkpoint in chosen:
            click.echo(f"{checkpoint.name}  {size(checkpoint.bytes)}  {checkpoint.state}", err=True)
        of = f"{found.run.name} {found.run.uid}"
        if not click.confirm(f"Remove this of {of} for good?", err=True):
            raise click.exceptions.Exit(1)
    for checkpoint in checkpoints.delete(chosen):
        click.echo(f"{checkpoint.name} of {found.run.name} is removed")
