"""Running commands to their end, and waiting for conditions."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.errors import SetupError

__all__ = ["capture", "run", "succeeds", "wait_until"]


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> None:
    """
    Run a command, silently.

    Raises:
        SetupError: If it fails; with the end of what it printed.
    """
    capture(*command, cwd=cwd, env=env, stdin=stdin)


def capture(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """
    What a command prints.

    Raises:
        SetupError: If it fails; with the end of what it printed.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=env, input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        printed = (done.stderr.strip() or done.stdout.strip())[-4000:]
        raise SetupError(f"exit code {done.returncode}: {shlex.join(words)}\n{printed}")
    return done.stdout


def succeeds(*command: str | Path, env: Mapping[str, str] | None = None) -> bool:
    """Whether a command ends with exit code 0."""
    words = [str(word) for word in command]
    return subprocess.run(words, env=env, capture_output=True).returncode == 0


def wait_until(
    condition: Callable[[], object], timeout_s: float, what: str, *, every_s: float = 0.1
) -> None:
    """
    Wait until a condition holds.

    Args:
        what: The condition in words, for the error.

    Raises:
        SetupError: If it does not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise SetupError(f"not within {timeout_s:g} s: {what}")
        time.sleep(every_s)
