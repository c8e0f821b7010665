"""``footplate wait``: for scripts."""

from __future__ import annotations

import sys
from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options
from footplate.cli._times import SECONDS

__all__ = ["command"]


@click.command("wait")
@click.argument("name")
@click.option(
    "--timeout", type=SECONDS, metavar="TIME", help="'90s', '10m', '2h'; left out: for ever."
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@cluster_options
def command(name: str, timeout: float | None, output: str, **where: Unpack[Where]) -> None:
    """
    Wait until the run NAME has ended.

    Exit codes: 0 succeeded; 2 the cluster takes the job for invalid; 3 something is not installed
    in its image; 10 the training code failed, 11 the loss is not finite, 12 data, 13 store, 14
    checkpoint, 16 a process vanished, 17 a newer attempt has taken over; 19 its pods did not start
    in time; 20 cancelled, 21 deleted, 22 deactivated by somebody else; 1 failed otherwise.

    Of the waiting itself: 5 there is no such run, 18 the cluster fails, 124 the time is over and
    the run goes on, 130 Ctrl-C.
    """
    from footplate.cli._notes import Notes
    from footplate.cli._states import print_end
    from footplate.runs.handle import find_run

    state = find_run(name, **where).wait(timeout, observer=Notes())
    print_end(state, output)
    sys.exit(state.exit_code)
