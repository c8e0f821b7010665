"""``footplate store``: the runs in a store, and the space they take."""

from __future__ import annotations

import click

from footplate.cli import store_du, store_gc, store_ls

__all__ = ["command"]


@click.group("store")
def command() -> None:
    """
    The runs in a store, the space they take, and what of it nobody needs.

    No cluster is asked: what a store can tell of a run is what was written down in it.
    """


for _module in (store_ls, store_du, store_gc):
    command.add_command(_module.command)
