"""
The command line: one file a command, each imported only when it runs.

``footplate --help`` must stay instant, so this module imports nothing but click and knows the
commands by name only.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from typing import Any

import click

from footplate.errors import FootplateError

__all__ = ["main"]

# Command name to the module (in this package) and what `footplate --help` says of it. The
# module has a click command or group called `command`.
_COMMANDS = {
    "run": ("run", "Train here, on this machine; run again to go on."),
    "submit": ("submit", "Send a job to a cluster; repeat to finish what was interrupted."),
    "watch": ("watch", "See how runs go on; Ctrl-C only detaches."),
    "wait": ("wait", "Wait until a run has ended; its exit code says how."),
    "logs": ("logs", "Print what a run printed, driver and ranks."),
    "list": ("list", "List the runs of a namespace."),
    "status": ("status", "Say where a run stands, and on what it waits."),
    "history": ("history", "Say why each attempt of a run ended, and what that cost."),
    "dashboard": ("dashboard", "Open the Ray dashboard of a run, and its MLflow page."),
    "suspend": ("suspend", "Pause runs; their quota is given back."),
    "resume": ("resume", "Let suspended runs go on from their last checkpoint."),
    "cancel": ("cancel", "End runs for good, after a last checkpoint."),
    "delete": ("delete", "Remove runs from the cluster; their store stays."),
    "render": ("render", "Print the RayJob of a spec, and what goes with it, as YAML."),
    "validate": ("validate", "Check a spec and everything it names."),
    "checkpoints": ("checkpoints", "List, check, export, keep and remove checkpoints."),
    "store": ("store", "The runs in a store, the space they take, what nobody needs."),
    "dataset": ("dataset", "Describe, build, check and compare data sets."),
    "tracking": ("tracking", "Bring MLflow up to date with what was recorded."),
    "guard": ("guard", "In a cluster: replace lost pods, renew RayClusters, free quota."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"footplate.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our output (head, less) has gone; nothing is wrong. What is still in
            # the buffer must have somewhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            known = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(_COMMANDS)}."
            ctx.fail(f"No such command {args[0]!r}. {known}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="footplate", prog_name="footplate")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def _footplate(context: click.Context, debug: bool) -> None:
    """From one short file to a trained model: on this machine, or on KubeRay."""
    context.obj = debug


def main() -> None:
    """
    Run the command line; every expected error is one message and an exit code.

    Exit codes: 0 done; 1 a bug of ours; 2 the command or the spec is wrong; otherwise the
    ``exit_code`` of the error (see :mod:`footplate.errors`); 130 interrupted.
    """
    # Whoever wants to see more adds --debug to the end of the line that failed.
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        code = _footplate(["--debug", *arguments] if debug else arguments, standalone_mode=False)
    except FootplateError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"footplate: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)
