"""``footplate status``: where one run stands."""

from __future__ import annotations

import time
from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("status")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
)
@cluster_options
def command(name: str, output: str, **where: Unpack[Where]) -> None:
    """
    Say where the run NAME stands, on what it waits, or how it ended.

    Exit codes: 0 whatever the run does (`footplate wait` has one for each end), 5 there is no such
    run, 18 the cluster fails.
    """
    from footplate.cli._output import print_json, print_yaml
    from footplate.cli._states import print_state
    from footplate.runs.handle import find_run

    run = find_run(name, **where)
    state = run.status()
    if output == "json":
        print_json(state.to_dict())
    elif output == "yaml":
        print_yaml(state.to_dict())
    else:
        print_state(state, now=time.time(), space=run.space() if state.attempt else None)
