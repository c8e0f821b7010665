"""A script with its own trainer is a run like any other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from mlflow import MlflowClient

from footplate.train.own_checkpoints import newest_own_checkpoint

if TYPE_CHECKING:
    from tests.local.conftest import Place

pytestmark = pytest.mark.local

SPEC = "rayjobs/own_trainer.toml"
EPOCHS = 6
CHANGES = (f"params.epochs={EPOCHS}",)


def test_goes_on_with_what_its_trainer_saved(place: Place) -> None:
    """Killed and run again, it takes up its newest checkpoint, in the same MLflow run."""
    running = place.start(SPEC, *CHANGES)
    running.wait_for("a checkpoint", lambda: _saved(place, 1) is not None)
    running.kill()
    saved = _saved(place, 1)

    finished = place.run(SPEC, *CHANGES)

    assert finished.exit_code == 0, finished.err
    assert f"attempt 2 of own-trainer {finished.result['uid']} goes on from" in finished.err
    assert str(saved) in finished.err
    first = re.search(r"epoch (\d+): loss", finished.err)
    assert first is not None
    assert int(first[1]) > 0
    _check_mlflow(place, finished.result["uid"])


def test_a_script_that_fails_is_the_users(place: Place) -> None:
    """The message has the command, its exit code, and the last that it printed."""
    (place.folder / "rayjobs" / "own_trainer.py").write_text("raise SystemExit('no data today')")
    failed = place.run(SPEC)
    assert failed.exit_code == 10, failed.err
    assert "python own_trainer.py ended with exit code 1; its last output:" in failed.err
    assert "no data today" in failed.err
    assert failed.result["failure"]["category"] == "user_code"


def _saved(place: Place, attempt: int) -> str | None:
    """The newest checkpoint of an attempt's own trainer."""
    if not place.has_run("own-trainer"):
        return None
    return newest_own_checkpoint(place.store, place.newest("own-trainer").paths.attempt(attempt))


def _check_mlflow(place: Place, uid: str) -> None:
    """One run, finished, with what the driver and the script's rank 0 recorded."""
    client = MlflowClient(f"sqlite:///{place.folder}/.footplate/mlflow.db")
    experiment = client.get_experiment_by_name("own-trainer")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.tags["footplate.job_uid"] == uid
    assert run.data.tags["mlflow.source.name"] == "python own_trainer.py"
    assert run.info.status == "FINISHED"
    assert run.data.params["epochs"] == str(EPOCHS)
    history = client.get_metric_history(run.info.run_id, "loss")
    assert {point.step for point in history} == set(range(EPOCHS))
