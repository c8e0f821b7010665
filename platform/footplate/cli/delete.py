"""``footplate delete``."""

from __future__ import annotations

from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cluster_options
def command(names: tuple[str, ...], **where: Unpack[Where]) -> None:
    """
    Remove runs from the cluster; what is in the store stays.

    One that trains is ended without a last checkpoint: `footplate cancel` is the gentle way.

    Exit codes: 0 done, 5 one of them is not there (then nothing is done), 18 the cluster fails.
    """
    from footplate.runs.handle import find_run

    for run in [find_run(name, **where) for name in names]:
        run.delete()
        click.echo(f"{run.name} is deleted")
