"""``footplate list``: the runs of a namespace."""

from __future__ import annotations

import time
from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="Of the whole cluster.")
@click.option("-l", "--selector", metavar="LABELS", default="", help="Only with these labels.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "name"]),
    default="table",
    show_default=True,
)
@cluster_options
def command(all_namespaces: bool, selector: str, output: str, **where: Unpack[Where]) -> None:
    """
    List the runs of a namespace, newest first, and where each stands.

    Exit codes: 0 listed, none included, 18 the cluster fails.
    """
    from footplate.cli._output import print_json, print_yaml
    from footplate.cli._states import print_states
    from footplate.runs.listing import list_runs

    if all_namespaces and where["namespace"] is not None:
        raise click.UsageError("-n names a namespace, and -A means all of them")
    states = list_runs(all_namespaces=all_namespaces, labels=selector, **where)
    if output == "json":
        print_json([state.to_dict() for state in states])
    elif output == "yaml":
        print_yaml([state.to_dict() for state in states])
    elif output == "name":
        for state in states:
            click.echo(f"rayjob.ray.io/{state.name}")
    elif not states:
        click.echo(_nothing(all_namespaces, where), err=True)
    else:
        columns = ["NAMESPACE"] * all_namespaces + ["NAME", "STATUS", "WORKERS", "AGE"]
        columns += ["UID", "REASON"] * (output == "wide")
        print_states(states, now=time.time(), columns=columns)


def _nothing(all_namespaces: bool, where: Where) -> str:
    from footplate.cluster import connect

    if all_namespaces:
        return "no runs in any namespace"
    return f"no runs in namespace {connect(**where).namespace}; -A looks in all of them"
