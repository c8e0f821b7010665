"""``footplate run``: train on this machine."""

from __future__ import annotations

import sys
from typing import Any

import click

__all__ = ["command"]


@click.command("run")
@click.argument("spec", type=click.Path())
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key.")
@click.option(
    "--continue-from",
    metavar="NAME",
    help="Start from the newest checkpoint of the run of that name (or UID), with all its state.",
)
@click.option("--fresh", is_flag=True, help="Start a new run, whatever is there.")
@click.option(
    "--continue",
    "continue_changed",
    is_flag=True,
    help="Go on with the last run although the spec changed, if the changes are safe.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def command(
    context: click.Context,
    spec: str,
    overrides: tuple[str, ...],
    continue_from: str | None,
    fresh: bool,
    continue_changed: bool,
    output: str,
) -> None:
    """
    Train SPEC on this machine.

    Stopped or killed, the same command goes on where it was. Ctrl-C saves a checkpoint first;
    pressed twice it stops at once.

    Exit codes: 0 succeeded, 2 the spec is wrong, 3 something is not installed, 4 the run is
    busy, 10 the training code failed, 11 the loss is not finite, 12 data, 13 store, 14
    checkpoint, 16 a process vanished, 17 a newer attempt has taken over, 130 stopped.
    """
    from footplate.cli._output import print_json
    from footplate.cli._progress import LiveProgress
    from footplate.cli._result import print_failure, print_outcome
    from footplate.runs import run
    from footplate.runs.continuing import continued
    from footplate.spec import load

    job = load(spec, overrides)
    if continue_from is not None:
        job = continued(job, continue_from)
    with LiveProgress() as observer:
        outcome = run(
            job,
            fresh=fresh,
            continue_changed=continue_changed,
            source=spec,
            observer=observer,
        )
    if output == "json":
        print_json(_as_json(outcome))
    else:
        print_outcome(job, outcome, spec)
    if outcome.result.failure is not None:
        print_failure(outcome, debug=bool(context.obj))
    sys.exit(outcome.exit_code)


def _as_json(outcome: Any) -> dict[str, Any]:
    return {
        "name": outcome.run.name,
        "uid": outcome.run.uid,
        "attempt": outcome.attempt,
        "exit_code": outcome.exit_code,
        "log": str(outcome.log),
        **outcome.result.model_dump(mode="json"),
    }
