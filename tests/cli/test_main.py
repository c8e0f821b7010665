"""The command line as a whole: help, mistakes, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOOTPLATE = Path(sys.executable).with_name("footplate")
COMMANDS = (
    "run",
    "submit",
    "watch",
    "wait",
    "logs",
    "list",
    "status",
    "history",
    "dashboard",
    "suspend",
    "resume",
    "cancel",
    "delete",
    "render",
    "validate",
    "checkpoints",
    "store",
    "dataset",
    "tracking",
    "guard",
)


def footplate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    return subprocess.run([str(FOOTPLATE), *arguments], capture_output=True, text=True)


def test_help_names_every_command() -> None:
    """Without a command, or asked, it says what there is."""
    shown = footplate("--help")
    assert shown.returncode == 0
    listed = shown.stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)


def test_mistyped_command_names_the_nearest() -> None:
    """A typing mistake is answered with what was probably meant, a stranger one with all."""
    assert "Did you mean 'render'?" in footplate("redner", "spec.toml").stderr
    strange = footplate("zzz")
    assert strange.returncode == 2
    assert f"There are {', '.join(COMMANDS)}." in strange.stderr


def test_expected_error_is_one_message() -> None:
    """What is wrong is said without a traceback; --debug, wherever it stands, adds that."""
    plain = footplate("validate", "nowhere.toml")
    assert plain.returncode == 2
    assert plain.stderr.startswith("footplate: nowhere.toml: 1 problem\n")
    debugged = footplate("validate", "nowhere.toml", "--debug")
    assert debugged.returncode == 2
    assert "Traceback" in debugged.stderr


def test_reader_that_goes_away_is_no_error() -> None:
    """`footplate ... | head` ends quietly."""
    command = f"set -o pipefail; {FOOTPLATE} validate --schema | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")
