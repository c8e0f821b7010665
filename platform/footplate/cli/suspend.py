"""``footplate suspend``."""

from __future__ import annotations

from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("suspend")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cluster_options
def command(names: tuple[str, ...], **where: Unpack[Where]) -> None:
    """
    Pause runs: they save and end, and give their quota back until they are resumed.

    Exit codes: 0 done, 5 one of them is not there (then nothing is done) or has ended, 18 the
    cluster fails.
    """
    from footplate.runs.handle import find_run

    for run in [find_run(name, **where) for name in names]:
        done = "is suspended" if run.suspend() else "was suspended before"
        again = f"footplate resume {run.name} -n {run.namespace}"
        click.echo(f"{run.name} {done}; {again} lets it go on")
