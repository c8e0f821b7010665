"""``footplate watch``: see how runs go on."""

from __future__ import annotations

import sys
from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("watch")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-l", "--selector", metavar="LABELS", default="", help="Runs with these labels.")
@cluster_options
def command(names: tuple[str, ...], selector: str, **where: Unpack[Where]) -> None:
    """
    Show where runs stand until they have ended; all of the namespace if none is named.

    Ctrl-C ends the view, never a run.

    Exit codes: with one NAME those of `footplate wait`; otherwise 0 all have ended, 5 there is no
    such run, 18 the cluster fails, 130 Ctrl-C.
    """
    from footplate.cli._view import show_many, show_until_end

    if len(names) == 1 and not selector:
        from footplate.runs.handle import find_run

        state = show_until_end(find_run(names[0], **where))
        click.echo(state.reason)
        sys.exit(state.exit_code)
    show_many(names, selector, **where)
