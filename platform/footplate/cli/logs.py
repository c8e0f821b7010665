"""``footplate logs``: what a run printed."""

from __future__ import annotations

from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("logs")
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Of this attempt alone.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@cluster_options
def command(
    name: str,
    follow: bool,
    attempt: int | None,
    tail: int | None,
    **where: Unpack[Where],
) -> None:
    """
    Print what the driver and the ranks of NAME printed, over all its attempts.

    It comes from the run's store, so it is there when pods are replaced or gone; a line may
    take some seconds to arrive. Of a run that has left nothing there it is what the cluster still
    has, and standard error says what that is.

    Exit codes: 0 printed, 5 there is no such run or attempt, 13 its store can't be read from here,
    18 the cluster fails, 130 Ctrl-C.
    """
    from footplate.cli._notes import Notes
    from footplate.runs.handle import find_run

    run = find_run(name, **where)
    line = None
    for line in run.logs(follow=follow, attempt=attempt, tail=tail, observer=Notes()):
        click.echo(line)
    if line is None and tail != 0:
        which = name if attempt is None else f"attempt {attempt} of {name}"
        click.echo(f"{which} has printed nothing yet", err=True)
