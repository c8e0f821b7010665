"""``footplate render``: what would be sent to the cluster."""

from __future__ import annotations

import click

from footplate.cli._output import print_json, print_note
from footplate.render import render, to_yaml, warnings
from footplate.runtimes import find_runtime
from footplate.spec import load

__all__ = ["command"]


@click.command("render")
@click.argument("spec", type=click.Path())
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Where to run.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True
)
def command(spec: str, overrides: tuple[str, ...], namespace: str, output: str) -> None:
    """Print the RayJob of SPEC, and what goes with it; nothing is sent."""
    job = load(spec, overrides)
    runtime = find_runtime(job.runtime)
    objects = render(job, runtime, namespace=namespace)
    for warning in warnings(job, runtime):
        print_note(warning)
    if output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": objects})
    else:
        # As bytes, so that they do not depend on the locale.
        click.echo(to_yaml(objects).encode(), nl=False)
