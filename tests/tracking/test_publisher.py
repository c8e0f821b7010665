"""Publishing follows the log, survives outages, and never holds up training."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from footplate.tracking import MetricPoint, Publisher, PublishResult, RunStatus, sync

if TYPE_CHECKING:
    from tests.tracking.conftest import Recorded, Server

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")

_NOWHERE = "http://127.0.0.1:9"


def _publisher(
    recorded: Recorded, uri: str, *, attempt: int = 1, report: Callable[[str], None] = print
) -> Publisher:
    publisher = Publisher(
        recorded.store,
        recorded.run,
        attempt=attempt,
        uri=uri,
        experiment="digits",
        interval_s=0.05,
        report=report,
    )
    publisher.start()
    return publisher


def _publish(
    recorded: Recorded, uri: str, status: RunStatus = "FINISHED", attempt: int = 1
) -> PublishResult:
    return _publisher(recorded, uri, attempt=attempt).close(status)


def _run(recorded: Recorded, uri: str) -> Any:
    """The one active run in MLflow, or None."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("digits")
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    assert len(runs) <= 1
    return runs[0] if runs else None


def _steps(recorded: Recorded, uri: str) -> list[int]:
    """The steps in MLflow's history, in its order."""
    from mlflow.tracking import MlflowClient

    run = _run(recorded, uri)
    if run is None:
        return []
    return [entry.step for entry in MlflowClient(uri).get_metric_history(run.info.run_id, "loss")]


def _wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up, "in vain"
        time.sleep(0.02)


def test_metrics_appear_while_training(recorded: Recorded, database: str) -> None:
    """The curves of a running job can be watched; what comes last is there at the end."""
    publisher = _publisher(recorded, database)
    recorded.log(1, range(1, 11))
    _wait_until(lambda: len(_steps(recorded, database)) == 10)
    assert _run(recorded, database).info.status == "RUNNING"
    recorded.log(1, range(11, 21))
    result = publisher.close("FINISHED")
    assert _steps(recorded, database) == list(range(1, 21))
    assert result == PublishResult(
        uri=database,
        experiment="digits",
        run_id=_run(recorded, database).info.run_id,
        status="FINISHED",
        complete=True,
        points_sent=20,
    )


def test_an_attempt_goes_on_in_the_same_run(recorded: Recorded, database: str) -> None:
    """Over a kill and a resume there is one run, with each step once, and the last status."""
    recorded.log(1, range(1, 8))
    first = _publish(recorded, database, "KILLED")
    recorded.claim(2, "step-00000005.a0001")
    publisher = _publisher(recorded, database, attempt=2)
    _wait_until(lambda: bool(_run(recorded, database).info.status == "RUNNING"))
    recorded.log(2, range(6, 11))
    second = publisher.close("FAILED")
    assert (second.run_id, second.points_sent) == (first.run_id, 3)
    assert _steps(recorded, database) == list(range(1, 11))
    assert _run(recorded, database).info.status == "FAILED"


def test_steps_that_nothing_was_built_on_are_not_published(
    recorded: Recorded, database: str
) -> None:
    """An attempt that could not publish is caught up with only as far as it counts."""
    recorded.append(1, *(MetricPoint(step, step, {"loss": 1.0}) for step in range(1, 8)))
    recorded.claim(2, "step-00000005.a0001")
    recorded.append(2, *(MetricPoint(step, step, {"loss": 2.0}) for step in range(6, 9)))
    _publish(recorded, database, attempt=2)
    assert _run(recorded, database).data.metrics == {"loss": 2.0}
    from mlflow.tracking import MlflowClient

    run_id = _run(recorded, database).info.run_id
    history = MlflowClient(database).get_metric_history(run_id, "loss")
    assert [entry.value for entry in history] == [1.0] * 5 + [2.0] * 3


def test_data_that_is_prepared_later_is_recorded(recorded: Recorded, database: str) -> None:
    """Preparing a data set may take minutes; its version is known only after that."""
    content = recorded.store.get(recorded.run.data)
    recorded.store.delete(recorded.run.data)
    publisher = _publisher(recorded, database)
    _wait_until(lambda: bool((run := _run(recorded, database)) and run.data.params))
    assert "job.data.train.version" not in _run(recorded, database).data.params
    recorded.store.put(recorded.run.data, content)
    publisher.close("FINISHED")
    data = _run(recorded, database).data
    assert data.params["job.data.train.version"] == "feed"
    assert data.tags["footplate.data.train"] == "/data/digits.json"
    assert not [tag for tag in data.tags if tag.startswith("attempt.")]


def test_a_fenced_driver_stops_publishing(recorded: Recorded, database: str) -> None:
    """What it still has to say, its status above all, is not that of the run any more."""
    recorded.log(1, range(1, 4))
    _publish(recorded, database, "KILLED")
    old = _publisher(recorded, database)
    recorded.claim(2, "step-00000003.a0001")
    new = _publisher(recorded, database, attempt=2)
    recorded.log(1, range(4, 9))
    result = old.close("FAILED")
    assert not result.complete
    assert result.error == f"attempt 1 of {recorded.run.root} is fenced by attempt 2"
    recorded.log(2, range(4, 6))
    assert new.close("FINISHED").complete
    assert _run(recorded, database).info.status == "FINISHED"
    assert _steps(recorded, database) == [1, 2, 3, 4, 5]


def test_a_run_deleted_meanwhile_is_made_again_in_whole(recorded: Recorded, database: str) -> None:
    """The new run has what the deleted one had, since all of it is in the log."""
    from mlflow.tracking import MlflowClient

    publisher = _publisher(recorded, database)
    recorded.log(1, range(1, 6))
    _wait_until(lambda: len(_steps(recorded, database)) == 5)
    deleted = _run(recorded, database).info.run_id
    MlflowClient(database).delete_run(deleted)
    recorded.log(1, range(6, 9))
    assert publisher.close("FINISHED").complete
    assert _run(recorded, database).data.tags["footplate.replaces"] == deleted
    assert _run(recorded, database).data.params["lr"] == "0.1"
    assert _steps(recorded, database) == list(range(1, 9))


def test_closing_takes_no_longer_than_it_may() -> None:
    """A server that takes connections and never answers does not hold up the end of a run."""
    # In a process of its own, whose end the thread must not hold up either.
    script = """
import socket, sys, tempfile, time
from footplate.store import Claim, RunPaths, RunRecord, Store, claim_next, to_json
from footplate.tracking import Publisher
silent = socket.create_server(("127.0.0.1", 0))
store = Store(tempfile.mkdtemp())
run = RunPaths(namespace="local", name="digits", uid="u")
record = RunRecord(uid="u", namespace="local", name="digits", created=1.0, spec={})
store.put(run.record, to_json(record))
claim_next(store, run, Claim(attempt=1, token="t", host="h", pid=1, claimed=1.0, spec={}))
uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
publisher = Publisher(store, run, attempt=1, uri=uri, experiment="digits")
publisher.start()
silent.accept()
before = time.monotonic()
result = publisher.close("FINISHED", deadline_s=0.5)
assert time.monotonic() - before < 2, "close took too long"
assert not result.complete
print(result.error)
"""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "MLflow did not take everything within 0.5 s\n"
    assert time.monotonic() - begun < 15


def test_a_dead_server_is_given_up_at_once(recorded: Recorded) -> None:
    """Whoever trains without the server waits for it neither during the run nor at its end."""
    lines: list[str] = []
    publisher = _publisher(recorded, _NOWHERE, report=lines.append)
    _wait_until(lambda: bool(lines))
    begun = time.monotonic()
    result = publisher.close("FINISHED", deadline_s=30)
    assert time.monotonic() - begun < 5
    assert not result.complete
    assert result.run_id is None
    assert result.error is not None
    assert result.error.startswith(f"cannot reach MLflow at {_NOWHERE}: ")
    assert len(lines) == 1


def test_outages_cost_nothing(recorded: Recorded, server: Server) -> None:
    """Down from the start, down in the middle: each told once, and in the end all is there."""
    lines: list[str] = []
    publisher = _publisher(recorded, server.uri, report=lines.append)
    recorded.log(1, range(1, 6))
    _wait_until(lambda: len(lines) == 1)
    assert lines[0].startswith(f"tracking: cannot reach MLflow at {server.uri}: ")
    assert "training goes on" in lines[0]

    server.start()
    _wait_until(lambda: len(lines) == 2)
    assert _steps(recorded, server.uri) == [1, 2, 3, 4, 5]

    server.kill()
    recorded.log(1, range(6, 11))
    _wait_until(lambda: len(lines) == 3)
    result = publisher.close("FINISHED")
    assert not result.complete
    assert result.run_id is not None
    recorded.log(1, range(11, 21))
    recorded.end(1, status="succeeded")

    server.start()
    synced = sync(recorded.store, recorded.run, uri=server.uri, experiment="digits")
    assert (synced.run_id, synced.points_sent, synced.status) == (result.run_id, 15, "FINISHED")
    assert synced.url == f"{server.uri}/#/experiments/1/runs/{result.run_id}"
    assert _steps(recorded, server.uri) == list(range(1, 21))
    assert _run(recorded, server.uri).info.status == "FINISHED"
    assert len(lines) == 3


def test_between_attempts_the_run_is_running(recorded: Recorded, database: str) -> None:
    """Nobody who watches MLflow is told of an end when another attempt follows."""
    recorded.log(1, range(1, 4))
    result = _publish(recorded, database, "RUNNING")
    assert (result.status, result.complete) == ("RUNNING", True)
    info = _run(recorded, database).info
    assert (info.status, info.end_time) == ("RUNNING", None)
