"""A run killed at every stage ends as if nothing had happened."""

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
EPOCH = 80


def test_killed_run_equals_an_uninterrupted_one(place: Place, other_place: Place) -> None:
    """
    Killed at each stage, every step's losses stay bit-equal, in one MLflow run.

    SIGKILL comes before the first save, between data and marker, inside an epoch, between
    epochs, and after the last step; Ctrl-C once in between.
    """
    kill_before_the_first_save(place)
    torn = kill_between_data_and_marker(place)
    kill_inside_an_epoch(place)
    kill_between_epochs(place)
    press_ctrl_c(place)
    kill_after_the_last_step(place)
    finished = place.run(SPEC, *place.tiny)
    uninterrupted = other_place.run(SPEC, *place.tiny)

    assert finished.exit_code == 0, finished.err
    assert uninterrupted.exit_code == 0, uninterrupted.err
    assert (finished.result["attempt"], finished.result["steps"]) == (7, STEPS)
    assert torn not in starts(place)
    losses = place.metrics("textlm")
    assert len(losses) == STEPS
    assert losses == other_place.metrics("textlm")
    check_mlflow(place, losses)


def starts(place: Place) -> list[CheckpointName | None]:
    """What each attempt started from."""
    names = [claim.starts_from for claim in place.newest("textlm").claims]
    return [CheckpointName.parse(name) if name else None for name in names]


def kill_before_the_first_save(place: Place) -> None:
    """Steps are made and nothing is saved: all of them are lost."""
    running = place.start(SPEC, *place.tiny)
    running.wait_for("the first step", lambda: place.is_training("textlm", 1))
    running.kill()
    assert place.checkpoints("textlm") == []


def kill_between_data_and_marker(place: Place) -> CheckpointName:
    """All files of a checkpoint are there, its marker is not: it must never be read."""
    running = place.start(SPEC, *place.tiny)
    running.wait_for("training again", lambda: place.is_training("textlm", 2))
    ranks = running.ranks()
    assert len(ranks) == 2
    torn: list[CheckpointName] = []

    def caught() -> bool:
        candidates = place.torn_checkpoints("textlm", attempt=2)
        if not candidates:
            return False
        for rank in ranks:
            rank.suspend()
        torn[:] = place.torn_checkpoints("textlm", attempt=2)
        if not torn:  # the marker was faster: let it go on to its next checkpoint
            for rank in ranks:
                rank.resume()
        return bool(torn)

    running.wait_for("a checkpoint without its marker", caught)
    running.kill()
    assert place.torn_checkpoints("textlm", attempt=2) == torn
    return torn[0]


def kill_inside_an_epoch(place: Place) -> None:
    """Killed with steps made since the last checkpoint, none of them at an epoch's end."""
    running = place.start(SPEC, *place.tiny)
    running.wait_for("some steps", lambda: place.is_training("textlm", 3, steps=25))
    running.kill()


def kill_between_epochs(place: Place) -> None:
    """Killed with the state after the second epoch's last step saved, and little else."""
    running = place.start(SPEC, *place.tiny)
    running.wait_for("the epoch's end", lambda: max(place.checkpoints("textlm")) >= 2 * EPOCH)
    running.kill()


def press_ctrl_c(place: Place) -> None:
    """Ctrl-C saves the newest step, says how to go on, and exits with 130."""
    running = place.start(SPEC, *place.tiny)
    running.wait_for("training again", lambda: place.is_training("textlm", 5))
    assert starts(place)[4] == CheckpointName(2 * EPOCH, 4)
    running.interrupt()
    stopped = running.finish()
    assert stopped.exit_code == 130, stopped.err
    assert stopped.result["status"] == "interrupted"
    assert stopped.result["steps"] == max(place.checkpoints("textlm")) > 2 * EPOCH


def kill_after_the_last_step(place: Place) -> None:
    """Killed when all is trained and saved, but not yet said to have succeeded."""
    running = place.start(SPEC, *place.tiny)
    running.wait_for("the last step", lambda: max(place.checkpoints("textlm")) == STEPS)
    running.kill()
    assert place.newest("textlm").result is None


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


def test_shared_out_parameters_come_back(place: Place, other_place: Place) -> None:
    """A killed run whose ranks have a part of every parameter each ends like an untouched one."""
    changes = (*place.tiny, "workers.parallel=fsdp", "limits.max_steps=100")
    running = place.start(SPEC, *changes)
    running.wait_for("some steps", lambda: place.is_training("textlm", 1, steps=45))
    running.kill()
    finished = place.run(SPEC, *changes)
    uninterrupted = other_place.run(SPEC, *changes)

    assert finished.exit_code == 0, finished.err
    assert uninterrupted.exit_code == 0, uninterrupted.err
    (_, start) = starts(place)
    assert start is not None
    assert start.step >= 20
    losses = place.metrics("textlm")
    assert len(losses) == 100
    assert losses == other_place.metrics("textlm")
