"""`footplate history` tells why attempts ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from footplate.cli.history import command
from footplate.errors import RunNotFoundError

if TYPE_CHECKING:
    from tests.cli.conftest import StoreMaker


def test_attempts_are_listed(here: StoreMaker) -> None:
    """One line each, and all that is known as JSON."""
    run = here.run()
    run.claim(1)
    run.report(age_s=3000, attempt=1)
    run.claim(2)
    run.end("succeeded", 2)
    result = CliRunner().invoke(command, ["digits"])
    assert result.exit_code == 0, (result.output, result.exception)
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        "ATTEMPT", "BEGAN", "TOOK", "STEPS", "REPEATED", "PAUSE", "ENDED",
    ]  # fmt: skip
    assert lines[1].split() == ["1", "1h00m", "ago", "10m00s", "0", "to", "7", "7", "0s", "killed"]
    assert lines[2].split()[-4:] == ["0", "-", "-", "succeeded"]

    told = json.loads(CliRunner().invoke(command, ["digits", "-o", "json"]).stdout)
    assert [each["ending"] for each in told] == ["killed", "succeeded"]
    assert told[0]["cost"]["repeated_steps"] == 7


def test_a_run_without_attempts_has_none(here: StoreMaker) -> None:
    """Nothing on standard output for scripts, a sentence for people."""
    here.run()
    result = CliRunner().invoke(command, ["digits"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "has no attempt yet" in result.stderr


@pytest.mark.usefixtures("here")
def test_no_such_run() -> None:
    """Is an error of its own."""
    error = CliRunner().invoke(command, ["absent"]).exception
    assert isinstance(error, RunNotFoundError)
