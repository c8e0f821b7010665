"""``footplate dashboard``: the Ray dashboard of a run, and its MLflow page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from footplate.cli._cluster import Where, cluster_options

if TYPE_CHECKING:
    from footplate.runs.dashboard import Dashboard

__all__ = ["command"]


@click.command("dashboard")
@click.argument("name")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="To listen on; left out: 8265, or a free one if that is taken.",
)
@click.option("--open/--no-browser", "browser", help="Whether to open it in a browser.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@cluster_options
def command(
    name: str, port: int | None, browser: bool, output: str, **where: Unpack[Where]
) -> None:
    """
    Serve the Ray dashboard of the run NAME at an address of this machine, until Ctrl-C.

    The browser needs no token, and sees none: whoever is logged in to this machine can use the
    address. When the run gets a new head or RayCluster, the address leads there; while it has
    none, it says on what the run waits. It ends with the run.

    Exit codes: 0 the run has ended, 2 the port is taken, 5 there is no such run, or it has
    ended or is suspended, 18 the cluster fails, 130 Ctrl-C.
    """
    from footplate.cli._notes import Notes
    from footplate.runs.dashboard import open_dashboard

    try:
        dashboard = open_dashboard(name, port=port, observer=Notes(), **where)
    except OSError as error:
        raise click.UsageError(f"port {port} of this machine: {error.strerror}") from error
    with dashboard:
        _print(dashboard, output)
        if browser:
            click.launch(dashboard.job_page or dashboard.address)
        for note in dashboard.follow():
            click.echo(note, err=True)


def _print(dashboard: Dashboard, output: str) -> None:
    from footplate.cli._output import print_json

    page, mlflow = dashboard.job_page, dashboard.mlflow_page()
    if output == "json":
        print_json(
            {
                "name": dashboard.name,
                "namespace": dashboard.namespace,
                "address": dashboard.address,
                "job_page": page,
                "mlflow": mlflow,
            }
        )
        return
    click.echo(f"dashboard  {dashboard.address}")
    click.echo(f"this run   {page or f'not yet there: {dashboard.state.reason}'}")
    if mlflow is not None:
        click.echo(f"MLflow     {mlflow}")
    click.echo("Ctrl-C ends this; the run goes on", err=True)
