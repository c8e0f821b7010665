"""A run that is killed in the middle of a checkpoint, and one that is asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mlflow import MlflowClient

from footplate.store import CheckpointName

if TYPE_CHECKING:
    from tests.local.conftest import Place

pytestmark = pytest.mark.local

SPEC = "rayjobs/textlm.toml"
STEPS = 240


def test_killed_and_interrupted_it_goes_on_as_if_nothing_had_happened(place: Place) -> None:
    """
    The last step before has the loss that it had, bit for bit, and all is in one MLflow run.

    SIGKILL comes between data and marker of a checkpoint, then Ctrl-C. Random moments, and a whole
    run that nothing has happened to beside them, are in test_chaos.
    """
    torn = kill_between_data_and_marker(place)
    killed = place.progress("textlm", 1)
    assert killed is not None
    press_ctrl_c(place)
    finished = place.run(SPEC, *place.tiny)

    assert finished.exit_code == 0, finished.err
    assert (finished.result["attempt"], finished.result["steps"]) == (3, STEPS)
    assert torn not in starts(place)
    losses = place.metrics("textlm")
    assert sorted(losses) == list(range(1, STEPS + 1))
    assert losses[killed.step]["loss"] == killed.metrics["loss"]
    check_mlflow(place, losses)


def starts(place: Place) -> list[CheckpointName | None]:
    """What each attempt started from."""
    names = [claim.starts_from for claim in place.newest("textlm").claims]
    return [CheckpointName.parse(name) if name else None for name in names]


def kill_between_data_and_marker(place: Place) -> CheckpointName:
    """All files of a checkpoint are there, its marker is not: it must never be read."""
    running = place.start(SPEC, *place.tiny)
    running.wait_for("training", lambda: place.is_training("textlm", 1))
    ranks = running.ranks()
    assert len(ranks) == 2
    torn: list[CheckpointName] = []

    def caught() -> bool:
        candidates = place.torn_checkpoints("textlm", attempt=1)
        if not candidates:
            return False
        for rank in ranks:
            rank.suspend()
        torn[:] = place.torn_checkpoints("textlm", attempt=1)
        if not torn:  # the marker was faster: let it go on to its next checkpoint
            for rank in ranks:
                rank.resume()
        return bool(torn)

    running.wait_for("a checkpoint without its marker", caught)
    running.kill()
    assert place.torn_checkpoints("textlm", attempt=1) == torn
    return torn[0]


def press_ctrl_c(place: Place) -> None:
    """Ctrl-C saves the newest step, says how to go on, and exits with 130."""
    running = place.start(SPEC, *place.tiny)
    running.wait_for("training again", lambda: place.is_training("textlm", 2))
    running.interrupt()
    stopped = running.finish()
    assert stopped.exit_code == 130, stopped.err
    assert stopped.result["status"] == "interrupted"
    assert stopped.result["steps"] == max(place.checkpoints("textlm"))


def check_mlflow(place: Place, losses: dict[int, dict[str, float]]) -> None:
    """One run for the Job UID, finished, with every step's loss exactly once."""
    client = MlflowClient(f"sqlite:///{place.folder}/.footplate/mlflow.db")
    experiment = client.get_experiment_by_name("textlm")
    uid = place.newest("textlm").record.uid
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.tags["footplate.job_uid"] == uid
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "loss")
    assert {point.step: point.value for point in history} == {
        step: metrics["loss"] for step, metrics in losses.items()
    }
    assert len(history) == STEPS
