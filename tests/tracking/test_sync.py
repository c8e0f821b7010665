"""What MLflow missed arrives later, completely and in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from footplate.errors import RunNotFoundError, TrackingError
from footplate.store import AttemptResult, read_record
from footplate.tracking import incomplete_runs, sync

if TYPE_CHECKING:
    from tests.tracking.conftest import Recorded

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


def _run(uri: str, run_id: str | None) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(uri).get_run(run_id)


@pytest.mark.parametrize(
    ("ended", "shown"),
    [("succeeded", "FINISHED"), ("failed", "FAILED"), ("interrupted", "KILLED"), (None, "RUNNING")],
)
def test_status_is_that_of_the_newest_attempt(
    recorded: Recorded, database: str, ended: str | None, shown: str
) -> None:
    """What MLflow shows is how the run ended, not how the process that publishes did."""
    recorded.end(1, status="failed")
    recorded.claim(2)
    if ended:
        recorded.end(2, status=ended)
    result = sync(recorded.store, recorded.run, uri=database, experiment="digits")
    info = _run(database, result.run_id).info
    assert (info.status, result.status) == (shown, shown)
    assert info.end_time == (2_000_000 if ended else None)


def test_a_run_that_goes_on_is_running(recorded: Recorded, database: str) -> None:
    """Between two attempts the result of the first one is not that of the run."""
    recorded.log(1, range(1, 4))
    recorded.end(1, status="failed", goes_on=True)
    result = sync(recorded.store, recorded.run, uri=database, experiment="digits")
    assert result.status == "RUNNING"


def test_a_second_time_sends_nothing(recorded: Recorded, database: str) -> None:
    """It may be run again and again, from several places."""
    recorded.log(1, range(1, 11))
    first = sync(recorded.store, recorded.run, uri=database, experiment="digits")
    second = sync(recorded.store, recorded.run, uri=database, experiment="digits")
    assert (first.points_sent, second.points_sent) == (10, 0)
    assert first.run_id == second.run_id


def test_an_ended_run_is_complete_from_then_on(recorded: Recorded, database: str) -> None:
    """The result of the attempt says so, and keeps everything else that it said."""
    recorded.log(1, range(1, 4))
    recorded.end(1, status="succeeded", steps=3, tracking={"complete": False, "error": "down"})
    assert incomplete_runs(recorded.store, "digits") == [recorded.run]
    synced = sync(recorded.store, recorded.run, uri=database, experiment="digits")
    assert incomplete_runs(recorded.store, "digits") == []
    assert incomplete_runs(recorded.store, "digits", uid=recorded.run.uid) == [recorded.run]
    result = read_record(recorded.store, recorded.run.attempt(1).result, AttemptResult)
    assert (result.status, result.steps) == ("succeeded", 3)
    assert result.tracking["run_id"] == synced.run_id


def test_incomplete_runs_are_found_newest_first(
    recorded: Recorded, new_run: Callable[..., Recorded]
) -> None:
    """Killed, running, or without its server: each is caught up with; what never began is not."""
    newer, complete, never_begun = (
        new_run(uid=uid, created=created)
        for uid, created in (("newer", 3000.0), ("complete", 2000.0), ("never-begun", 4000.0))
    )
    newer.claim(1)
    complete.claim(1)
    complete.end(1, status="succeeded", tracking={"complete": True})
    assert incomplete_runs(recorded.store, "digits") == [newer.run, recorded.run]
    assert never_begun.run not in incomplete_runs(recorded.store, "digits")


def test_a_run_that_is_not_there_is_named(recorded: Recorded) -> None:
    """A typing error in a name or UID is no success."""
    with pytest.raises(RunNotFoundError, match="no run of other in"):
        incomplete_runs(recorded.store, "other")
    with pytest.raises(RunNotFoundError, match="no run missing of digits in"):
        incomplete_runs(recorded.store, "digits", uid="missing")


def test_an_unreachable_server_is_an_error(recorded: Recorded) -> None:
    """A person who asks for it learns that it did not happen."""
    with pytest.raises(TrackingError, match="cannot reach MLflow"):
        sync(recorded.store, recorded.run, uri="http://127.0.0.1:9", experiment="digits")
