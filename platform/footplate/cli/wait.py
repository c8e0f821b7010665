"""``footplate wait``: for scripts."""

from __future__ import annotations

import sys
from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("wait")
@click.argument("name")
@click.option("--timeout", metavar="TIME", help="'90s', '10m', '2h'; left out: for ever.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@cluster_options
def command(name: str, timeout: str | None, output: str, **where: Unpack[Where]) -> None:
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
    from footplate.cli._output import print_json
    from footplate.runs.handle import find_run

    timeout_s = _seconds(timeout)
    state = find_run(name, **where).wait(timeout_s, observer=Notes())
    if output == "json":
        print_json(state.to_dict())
    else:
        click.echo(state.reason, err=state.exit_code != 0)
    sys.exit(state.exit_code)


def _seconds(text: str | None) -> float | None:
    from footplate.spec.cadence import parse_cadence

    if text is None:
        return None
    try:
        cadence = parse_cadence(text)
    except ValueError:
        cadence = None
    if cadence is None or cadence.unit != "seconds":
        what = f"{text!r} is no time; write '90s', '10m' or '2h'"
        raise click.BadParameter(what, param_hint="--timeout")
    return float(cadence.every)
