"""Running the same file again: what goes on, what starts anew, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import footplate

if TYPE_CHECKING:
    from tests.local.conftest import Place

pytestmark = pytest.mark.local

SPEC = "rayjobs/digits.toml"
SMALL = ("workers=1", "limits.epochs=4", "checkpoint.every=10 steps")


def test_one_at_a_time_and_on_with_more(place: Place) -> None:
    """While one process works on a run another is refused; --continue trains on with more."""
    running = place.start(SPEC, *SMALL)
    running.wait_for("the run", lambda: place.is_training("digits", 1))
    refused = place.run(SPEC, *SMALL)
    assert refused.exit_code == 4
    assert f"is being worked on by process {running.process.pid}" in refused.err
    running.wait_for("a checkpoint", lambda: bool(place.checkpoints("digits")))
    running.kill()
    goes_on_when_the_change_is_safe(place, uid(place), seed=0)


@pytest.mark.chaos
def test_rules_for_running_again(place: Place) -> None:
    """Busy, finished, changed, continued and fresh runs are told apart, and the user is told."""
    first = finishes_while_another_is_refused(place)
    second = starts_anew_when_finished(place)
    third = starts_anew_when_changed(place)
    goes_on_when_the_change_is_safe(place, third)
    fourth = starts_anew_when_told_to(place)
    assert len({first, second, third, fourth}) == 4


def uid(place: Place) -> str:
    """Job UID of the newest run."""
    return place.newest("digits").record.uid


def finishes_while_another_is_refused(place: Place) -> str:
    """
    A second process is refused while the first one works, and told which that is.

    The recipe as it is reads unknown people's digits, and ends with a table of what there is.
    """
    running = place.start(SPEC, output="table")
    running.wait_for("the run", lambda: place.is_training("digits", 1))
    refused = place.run(SPEC)
    assert refused.exit_code == 4
    assert f"is being worked on by process {running.process.pid}" in refused.err
    done = running.finish()
    assert done.exit_code == 0, done.err
    table = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    assert float(table["valid/accuracy"].split()[1]) >= 0.95
    assert "succeeded: 880 steps" in table["status"]
    assert {"checkpoints", "MLflow", "log", "loss"} <= set(table)
    assert "mlflow ui --backend-store-uri" in done.out
    return uid(place)


def starts_anew_when_finished(place: Place) -> str:
    """There is nothing to go on with, so the same command means a new run."""
    before = uid(place)
    running = place.start(SPEC)
    running.wait_for("another run", lambda: uid(place) != before)
    running.wait_for("its attempt", lambda: bool(place.newest("digits").claims))
    assert f"run {before} is finished: this is a new run" in running.kill()
    return uid(place)


def starts_anew_when_changed(place: Place) -> str:
    """Another seed is another training."""
    before = uid(place)
    running = place.start(SPEC, *SMALL, "seed=1")
    running.wait_for("another run", lambda: uid(place) != before)
    running.wait_for("a checkpoint", lambda: bool(place.checkpoints("digits")))
    errors = running.kill()
    assert "the spec changed: " in errors
    assert "seed 0 -> 1" in errors
    assert "this is a new run" in errors
    return uid(place)


def goes_on_when_the_change_is_safe(place: Place, before: str, *, seed: int = 1) -> None:
    """With --continue, more epochs and more workers go on from the checkpoint, data included."""
    changes = ("workers=2", "limits.epochs=5", "checkpoint.every=10 steps", f"seed={seed}")
    position = place.position("digits")
    finished = place.run(SPEC, *changes, flags=("--continue",))
    assert finished.exit_code == 0, finished.err
    assert finished.result["uid"] == before
    claims = place.newest("digits").claims
    start = claims[1].start
    assert start is not None
    rows = 1415
    left_in_epoch = rows - position % rows
    later_epochs = 5 - position // rows - 1
    assert finished.result["steps"] == start.step + left_in_epoch // 64 + later_epochs * (
        rows // 64
    )


def starts_anew_when_told_to(place: Place) -> str:
    """--fresh, from Python this time."""
    spec = place.folder / SPEC
    job = footplate.load(spec, SMALL).replace(limits={"epochs": 1})
    outcome = footplate.run(job, fresh=True)
    assert outcome.exit_code == 0
    assert outcome.result.steps == 1415 // 32
    return uid(place)
