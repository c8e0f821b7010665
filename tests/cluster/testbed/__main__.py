"""``python -m testbed``: the test cluster by hand."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable

from testbed import requirements
from testbed.build import build, find_build
from testbed.cluster import Testbed
from testbed.errors import SetupError
from testbed.paths import Paths
from testbed.report import tail

# Of all that a process needs to use the cluster, what differs from this process's own.
_EXPORTED = ("AWS_", "KUBECONFIG", "MLFLOW_")


def main() -> int:
    """Run one command."""
    arguments = _parser().parse_args()
    command: Callable[[argparse.Namespace], None] = arguments.command
    try:
        command(arguments)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        added.set_defaults(command=command)
        return added

    add("build", _build)
    up = add("up", _up)
    up.add_argument("--nodes", type=int, default=4, help="how many nodes (4)")
    up.add_argument("--gpus", type=int, default=8, help="GPUs that each claims to have (8)")
    add("down", _down)
    add("env", _env)
    add("sync", _sync)
    add("kill-node", _kill_node).add_argument("node", help="such as node-1")
    add("restore-node", _restore_node).add_argument("node", help="such as node-1")
    add("restart-api-server", _restart_api_server)
    add("logs", _logs)
    add("packages", _packages)
    return parser


def _build(_: argparse.Namespace) -> None:
    """Compile what is not compiled yet; minutes the first time."""
    paths = Paths.default()
    requirements.check(paths, builds=not find_build(paths).is_complete)
    print(build(paths).folder)


def _up(arguments: argparse.Namespace) -> None:
    """Start the cluster, and say how to use it."""
    start = time.monotonic()
    testbed = Testbed.up(nodes=arguments.nodes, gpus=arguments.gpus)
    print(f"# ready after {time.monotonic() - start:.0f} s")
    _print_exports(testbed)


def _down(_: argparse.Namespace) -> None:
    """Stop the cluster and remove all that it has made."""
    Testbed.clear()


def _env(_: argparse.Namespace) -> None:
    """Print the variables of a process that uses the cluster, for a shell's eval."""
    _print_exports(_running())


def _sync(_: argparse.Namespace) -> None:
    """Show the present source of Footplate to pods that start from now on."""
    _running().sync()


def _kill_node(arguments: argparse.Namespace) -> None:
    """Cut the power of a node."""
    _running().node(arguments.node).kill()


def _restore_node(arguments: argparse.Namespace) -> None:
    """Give a node power again."""
    _running().node(arguments.node).restore()


def _restart_api_server(_: argparse.Namespace) -> None:
    """Let the API server crash and start it again."""
    _running().restart_api_server()


def _logs(_: argparse.Namespace) -> None:
    """Print the last troubles that the components log, and where their logs are."""
    folder = Paths.default().logs
    print(tail(folder), folder, sep="\n")


def _packages(_: argparse.Namespace) -> None:
    """Print the Debian packages that the cluster needs."""
    print(*requirements.PACKAGES)


def _running() -> Testbed:
    found = Testbed.find()
    if not found:
        raise SetupError("no cluster is running: python -m testbed up")
    return found


def _print_exports(testbed: Testbed) -> None:
    for name, text in sorted(testbed.environment.items()):
        if name.startswith(_EXPORTED):
            print(f"export {name}={shlex.quote(text)}")


if __name__ == "__main__":
    sys.exit(main())
