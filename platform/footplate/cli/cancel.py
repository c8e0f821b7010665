"""``footplate cancel``."""

from __future__ import annotations

from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options
from footplate.cli._times import SECONDS

__all__ = ["command"]


@click.command("cancel")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--now", is_flag=True, help="Without a last checkpoint.")
@click.option(
    "--grace",
    type=SECONDS,
    metavar="TIME",
    default=90.0,
    help="How long saving may take; left out: 90s.",
)
@cluster_options
def command(names: tuple[str, ...], now: bool, grace: float, **where: Unpack[Where]) -> None:
    """
    End runs for good: they save and tell MLflow, and leave the cluster.

    Checkpoints and metrics stay in the store.

    Exit codes: 0 done, 5 one of them is not there (then nothing is done) or has ended, 18 the
    cluster fails.
    """
    from footplate.cli._notes import Notes
    from footplate.runs.handle import find_run

    for run in [find_run(name, **where) for name in names]:
        run.cancel(now=now, grace_s=grace, observer=Notes())
        click.echo(f"{run.name} is cancelled")
