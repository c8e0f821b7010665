"""``footplate render``: what would be sent to the cluster."""

from __future__ import annotations

import click

from footplate.cli._output import print_json, print_note
from footplate.render import to_yaml, unreachable, warnings
from footplate.runs.submission import prepare
from footplate.spec import load

__all__ = ["command"]


@click.command("render")
@click.argument("spec", type=click.Path())
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key.")
@click.option(
    "-n", "--namespace", default="default", metavar="NAME", show_default=True, help="Where to run."
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True
)
def command(spec: str, overrides: tuple[str, ...], namespace: str, output: str) -> None:
    """
    Print the RayJob of SPEC, and what goes with it, as `footplate submit` would send them.

    Nothing is sent. Only the UID is missing, which the API server gives.

    Exit codes: 0 printed, 2 the spec, or what it names, is wrong.
    """
    job = load(spec, overrides)
    submission = prepare(job, namespace=namespace, source=spec)
    objects = submission.objects()
    for problem in unreachable(job):
        print_note(f"cannot be submitted: {problem}")
    for warning in warnings(job, submission.runtime):
        print_note(warning)
    if output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": objects})
    else:
        # As bytes, so that they do not depend on the locale.
        click.echo(to_yaml(objects).encode(), nl=False)
