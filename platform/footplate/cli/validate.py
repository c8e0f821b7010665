"""``footplate validate``: whether a spec is right, and everything it names."""

from __future__ import annotations

from typing import Any

import click

from footplate.cli._output import print_json
from footplate.errors import Problem, SpecError
from footplate.runs.validate import Findings, examine
from footplate.spec import Job, load
from footplate.spec.lines import key_lines
from footplate.spec.schema import json_schema

__all__ = ["command"]


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        print_json(json_schema())
        context.exit()


@click.command("validate")
@click.argument("spec", type=click.Path())
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of specs, for editors, and exit.",
)
@click.pass_context
def command(context: click.Context, spec: str, overrides: tuple[str, ...], output: str) -> None:
    """
    Check SPEC, its code, its data and its runtime, without running anything.

    Exit code 2 if anything is wrong; all of it is said at once.
    """
    try:
        job = load(spec, overrides)
        with click.open_file(spec, encoding="utf-8") as file:
            findings = examine(job, key_lines(file.read()))
        if findings.problems:
            raise SpecError(spec, findings.problems)
    except SpecError as error:
        if output == "text":
            raise
        print_json({"valid": False, "problems": [_as_dict(p) for p in error.problems]})
        context.exit(error.exit_code)
    if output == "json":
        print_json({"valid": True, "problems": [], **_facts(job, findings)})
    else:
        click.echo(_summary(job, findings))


def _as_dict(problem: Problem) -> dict[str, str | int | None]:
    return {"where": problem.where, "what": problem.what, "line": problem.line}


def _facts(job: Job, findings: Findings) -> dict[str, Any]:
    data = {
        name: {"version": manifest.version, "rows": manifest.rows}
        for name, manifest in findings.manifests.items()
    }
    return {
        "world_size": job.workers.world_size,
        "usable_workers": list(job.usable_workers),
        "steps": findings.steps,
        "data": data,
    }


def _summary(job: Job, findings: Findings) -> str:
    workers = job.workers
    *fewer, _ = map(str, job.usable_workers)
    parts = [
        f"{_count(workers.world_size, 'rank')} "
        f"({_count(workers.count, 'pod')} of {workers.ranks_per_pod}"
        f"{'; goes on with ' if fewer else ''}{' or '.join(reversed(fewer))})"
    ]
    if job.data_workers is not None:
        parts.append(f"{_count(job.data_workers.count, 'data worker')} (in a cluster; here none)")
    for name in job.data_parts:
        if manifest := findings.manifests.get(name):
            parts.append(f"{name} {manifest.version}, {_count(manifest.rows, 'row')}")
        else:
            parts.append(f"{name} is prepared on first use")
    if findings.steps is not None:
        parts.append(_count(findings.steps, "step"))
    return f"{job.name} is valid: {'; '.join(parts)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
