"""``footplate checkpoints``: what a run has saved."""

from __future__ import annotations

import click

from footplate.cli import (
    checkpoints_delete,
    checkpoints_export,
    checkpoints_list,
    checkpoints_pin,
    checkpoints_show,
    checkpoints_unpin,
    checkpoints_verify,
)

__all__ = ["command"]


@click.group("checkpoints")
def command() -> None:
    """
    List, check, export, keep and remove the checkpoints of a run.

    NAME is that of the run, or the spec that it was started with. It is looked for in the store
    that is here (.footplate/runs), then in the cluster; --store names another place. STEP is a
    step or the name of a checkpoint; left out, it is the newest that counts.
    """


for _module in (
    checkpoints_list,
    checkpoints_show,
    checkpoints_verify,
    checkpoints_export,
    checkpoints_pin,
    checkpoints_unpin,
    checkpoints_delete,
):
    command.add_command(_module.command)
