"""A script with its own trainer that is wrong; what it does right is in test_cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Place

pytestmark = pytest.mark.local

SPEC = "rayjobs/own_trainer.toml"


def test_a_script_that_fails_is_the_users(place: Place) -> None:
    """The message has the command, its exit code, and the last that it printed."""
    (place.folder / "rayjobs" / "own_trainer.py").write_text("raise SystemExit('no data today')")
    failed = place.run(SPEC)
    assert failed.exit_code == 10, failed.err
    assert "python own_trainer.py ended with exit code 1; its last output:" in failed.err
    assert "no data today" in failed.err
    assert failed.result["failure"]["category"] == "user_code"
