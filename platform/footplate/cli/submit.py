"""``footplate submit``: send a job to a cluster."""

from __future__ import annotations

import sys
from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("submit")
@click.argument("spec", type=click.Path())
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key.")
@click.option(
    "--continue-from",
    metavar="NAME",
    help="Start from the newest checkpoint of the run of that name (or UID), with all its state.",
)
@click.option("--replace", is_flag=True, help="Delete a run of the same name, if there is one.")
@click.option("-w", "--watch", is_flag=True, help="Show how it goes on; Ctrl-C only detaches.")
@click.option("--wait", is_flag=True, help="End when it has ended, with its exit code.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "name", "json"]),
    default="text",
    show_default=True,
)
@cluster_options
def command(
    spec: str,
    overrides: tuple[str, ...],
    continue_from: str | None,
    replace: bool,
    watch: bool,
    wait: bool,
    output: str,
    **where: Unpack[Where],
) -> None:
    """
    Send SPEC to a cluster, with the code and the data that it names.

    An interrupted submission is finished by the same command. `footplate render SPEC` shows what
    is sent.

    Exit codes: 0 sent, 2 the spec is wrong or refused, 6 another run of that name is there, 13
    the store can't be written, 18 the cluster fails; with --watch or --wait those of
    `footplate wait`.
    """
    from footplate.cli._notes import Notes
    from footplate.cli._output import print_json, print_note
    from footplate.render import warnings
    from footplate.runs.continuing import continued
    from footplate.runs.submit import submit
    from footplate.runtimes import find_runtime
    from footplate.spec import load

    job = load(spec, overrides)
    if continue_from is not None:
        job = continued(job, continue_from)
    for warning in warnings(job, find_runtime(job.runtime)):
        print_note(warning)
    run = submit(job, replace=replace, source=spec, observer=Notes(), **where)
    if output == "name":
        click.echo(f"rayjob.ray.io/{run.name}")
    elif output == "text":
        click.echo(f"{run.name} is submitted to namespace {run.namespace}: {run.uid}")
    if watch or wait:
        from footplate.cli._states import print_end
        from footplate.cli._view import show_until_end

        state = show_until_end(run, quiet=not watch)
        print_end(state, output)
        sys.exit(state.exit_code)
    if output == "json":
        print_json({"name": run.name, "namespace": run.namespace, "uid": run.uid})
    elif output == "text":
        click.echo(f"footplate watch {run.name} -n {run.namespace} shows how it goes on", err=True)
