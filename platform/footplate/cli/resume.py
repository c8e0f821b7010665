"""``footplate resume``."""

from __future__ import annotations

from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("resume")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cluster_options
def command(names: tuple[str, ...], **where: Unpack[Where]) -> None:
    """
    Let suspended runs go on from their last checkpoint; one that is not suspended stays as it is.

    Exit codes: 0 none of them is suspended any more, 5 one of them is not there (then nothing is
    done) or has ended, 18 the cluster fails.
    """
    from footplate.runs.handle import find_run

    for run in [find_run(name, **where) for name in names]:
        if run.resume():
            click.echo(f"{run.name} is resumed")
        else:
            click.echo(f"{run.name} is not suspended; it is {run.status().phase}")
