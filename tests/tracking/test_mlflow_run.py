"""One MLflow run for a Job UID, whatever happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from footplate.errors import TrackingError
from footplate.store import RunData, read_claims, read_record
from footplate.tracking import MetricPoint, MlflowRun, open_run

if TYPE_CHECKING:
    from tests.tracking.conftest import Recorded

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


def _open(recorded: Recorded, uri: str, experiment: str = "digits") -> MlflowRun:
    return open_run(uri, experiment, store=recorded.store, run=recorded.run, record=recorded.record)


def _describe(recorded: Recorded, opened: MlflowRun) -> None:
    data = read_record(recorded.store, recorded.run.data, RunData)
    opened.describe(recorded.record, data, read_claims(recorded.store, recorded.run), "/the/run")


def _client(uri: str) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(uri)


def _runs(uri: str, experiment: str = "digits") -> list[str]:
    """All active runs of an experiment."""
    client = _client(uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return [run.info.run_id for run in found]


def _history(uri: str, run_id: str, key: str = "loss") -> list[tuple[int, float]]:
    return [(entry.step, entry.value) for entry in _client(uri).get_metric_history(run_id, key)]


def _points(steps: range, name: str = "loss") -> list[MetricPoint]:
    return [MetricPoint(step, 1000 + step, {name: step / 7}) for step in steps]


def test_a_run_is_found_before_one_is_created(recorded: Recorded, database: str) -> None:
    """Every attempt, and every synchronisation, writes to the one run of its Job UID."""
    first = _open(recorded, database)
    assert _open(recorded, database).run_id == first.run_id
    assert _runs(database) == [first.run_id]
    tags = _client(database).get_run(first.run_id).data.tags
    assert tags["footplate.job_uid"] == recorded.run.uid


def test_processes_that_open_at_once_share_a_run(recorded: Recorded, database: str) -> None:
    """Of a driver, the one it replaces and a person at a laptop, one creates the run."""
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: _open(recorded, database).run_id, range(8)))
    assert len(set(opened)) == 1
    assert _runs(database) == [opened[0]]


def test_runs_of_other_uids_are_others(
    recorded: Recorded, new_run: Callable[..., Recorded], database: str
) -> None:
    """Two runs of one job are two runs."""
    other = new_run(uid="another")
    assert _open(recorded, database).run_id != _open(other, database).run_id


def test_a_deleted_run_stays_deleted_and_is_linked(recorded: Recorded, database: str) -> None:
    """Somebody wanted it gone; training goes on, in a new run that says what it replaces."""
    deleted = _open(recorded, database).run_id
    _client(database).delete_run(deleted)
    new = _open(recorded, database).run_id
    assert _runs(database) == [new]
    assert _client(database).get_run(new).data.tags["footplate.replaces"] == deleted


def test_a_run_is_found_in_another_experiment(recorded: Recorded, database: str) -> None:
    """Renaming the experiment between two attempts does not split the run."""
    first = _open(recorded, database, "before")
    assert _open(recorded, database, "after").run_id == first.run_id


def test_a_candidate_that_was_left_behind_is_removed(recorded: Recorded, database: str) -> None:
    """A process that was killed while it created the run leaves no second one."""
    client = _client(database)
    experiment = client.create_experiment("digits")
    client.create_run(experiment, tags={"footplate.candidate_for": recorded.run.uid})
    opened = _open(recorded, database)
    assert _runs(database) == [opened.run_id]


def test_a_deleted_experiment_is_named(recorded: Recorded, database: str) -> None:
    """MLflow neither finds nor creates such an experiment; its own message does not say so."""
    client = _client(database)
    experiment = client.create_experiment("digits")
    client.delete_experiment(experiment)
    with pytest.raises(TrackingError, match="has been deleted") as caught:
        _open(recorded, database)
    assert f"--experiment-id {experiment}" in caught.value.hint


def test_a_new_database_is_made_in_silence(recorded: Recorded, tmp_path: Path) -> None:
    """The first run on a laptop prints nothing of MLflow's and litters no current folder."""
    uri = f"sqlite:///{tmp_path}/not/yet/mlflow.db"
    work = tmp_path / "work"
    work.mkdir()
    script = f"""
from footplate.store import *
from footplate.tracking import open_run
store = Store({recorded.store.uri!r})
run = RunPaths(namespace="local", name="digits", uid={recorded.run.uid!r})
record = read_record(store, run.record, RunRecord)
opened = open_run({uri!r}, "team/digits", store=store, run=run, record=record)
opened.end("FINISHED", 5000)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=work, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(work.iterdir()) == []
    experiment = _client(uri).get_experiment_by_name("team/digits")
    assert experiment.artifact_location == f"file://{tmp_path}/not/yet/mlartifacts/team%2Fdigits"


def test_what_describes_a_run_is_recorded(recorded: Recorded, database: str) -> None:
    """A result can be traced to its code, data, parameters and versions; no secret is copied."""
    opened = _open(recorded, database)
    _describe(recorded, opened)
    data = _client(database).get_run(opened.run_id).data
    assert data.params["lr"] == "0.1"
    assert data.params["model.width"] == "64"
    assert data.params["job.seed"] == "7"
    assert data.params["job.world_size"] == "4"
    assert data.params["job.data.train.version"] == "feed"
    assert data.tags["footplate.run"] == "/the/run"
    assert data.tags["footplate.attempts"] == "1"
    assert data.tags["footplate.version.torch"] == "2.8.0"
    assert data.tags["footplate.code.dirty"] == "true"
    assert data.tags["mlflow.source.git.commit"] == "c0ffee"
    assert "hidden" not in str(data)
    (renamed,) = [key for key in data.params if key.startswith("name_host-")]
    assert data.tags[f"footplate.param_name.{renamed}"] == "name@host"


def test_parameters_are_written_once(recorded: Recorded, database: str) -> None:
    """A later attempt that differs says so in tags of its own and changes nothing."""
    opened = _open(recorded, database)
    _describe(recorded, opened)
    before = _client(database).get_run(opened.run_id).data
    recorded.claim(2, params={"lr": 0.2, "model": {"width": 64}, "new": 1}, workers={"count": 8})
    _describe(recorded, _open(recorded, database))
    after = _client(database).get_run(opened.run_id).data
    assert before.params.items() <= after.params.items()
    assert after.params["new"] == "1"
    changed = {"footplate.attempts": "2", "attempt.2.lr": "0.2", "attempt.2.job.world_size": "8"}
    changed["attempt.2.job.workers.count"] = "8"
    assert after.tags == before.tags | changed


def test_a_run_is_recorded_as_large_as_it_may_be(recorded: Recorded, database: str) -> None:
    """With fewer workers it trains on the same steps, and its world size says what these are."""
    _describe(recorded, _open(recorded, database))
    recorded.claim(2, workers={"min": 2, "max": 8})
    opened = _open(recorded, database)
    _describe(recorded, opened)
    data = _client(database).get_run(opened.run_id).data
    assert data.tags["attempt.2.job.world_size"] == "8"
    assert (data.params["job.workers.min"], data.params["job.workers.max"]) == ("2", "8")


def test_many_and_long_parameters_are_accepted(recorded: Recorded, database: str) -> None:
    """What is more than MLflow takes at once, or in one value, is neither refused nor cut."""
    params = {f"p{number}": number for number in range(250)} | {"prompt": "x" * 7000, "empty": ""}
    recorded.claim(2, params=params)
    opened = _open(recorded, database)
    _describe(recorded, opened)
    recorded_params = _client(database).get_run(opened.run_id).data.params
    assert recorded_params["p249"] == "249"
    assert recorded_params["empty"] == ""
    assert recorded_params["prompt"].startswith("sha256:")


def test_metrics_arrive_once_and_in_order(recorded: Recorded, database: str) -> None:
    """Sending again, in whole or in part, by this process or the next, repeats nothing."""
    opened = _open(recorded, database)
    assert opened.log(_points(range(1, 2501))) == 2500
    assert opened.log(_points(range(2400, 2502))) == 1
    resumed = _open(recorded, database)
    assert resumed.log(_points(range(2000, 2503))) == 1
    assert _history(database, opened.run_id) == [(step, step / 7) for step in range(1, 2503)]


def test_two_processes_may_send_the_same(recorded: Recorded, database: str) -> None:
    """A synchronisation beside a driver that is publishing does no harm."""
    first, second = _open(recorded, database), _open(recorded, database)
    first.log(_points(range(1, 2)))
    second.log(_points(range(1, 2)))
    first.log(_points(range(2, 50)))
    second.log(_points(range(2, 60)))
    assert _history(database, first.run_id) == [(step, step / 7) for step in range(1, 60)]


def test_each_metric_has_its_own_last_step(recorded: Recorded, database: str) -> None:
    """An evaluation of a step that comes after the step's loss is no repetition."""
    opened = _open(recorded, database)
    opened.log(_points(range(1, 11)))
    assert opened.log(_points(range(10, 11), "valid/accuracy")) == 1
    assert _history(database, opened.run_id, "valid/accuracy") == [(10, 10 / 7)]


def test_refused_names_are_kept_in_tags(recorded: Recorded, database: str) -> None:
    """A metric called acc@5 is there, and its tag says what it was called."""
    opened = _open(recorded, database)
    opened.log([MetricPoint(1, 1, {"acc@5": 0.5, "acc(5": 0.25})])
    data = _client(database).get_run(opened.run_id).data
    names = {data.tags[f"footplate.metric_name.{key}"]: data.metrics[key] for key in data.metrics}
    assert names == {"acc@5": 0.5, "acc(5": 0.25}


def test_values_that_are_no_numbers_are_flagged(recorded: Recorded, database: str) -> None:
    """MLflow stores infinity as a huge number; a tag is true, and says when it began."""
    opened = _open(recorded, database)
    values = [1.0, float("nan"), float("inf"), 0.5]
    points = [MetricPoint(step, step, {"loss": value}) for step, value in enumerate(values)]
    assert opened.log(points) == 2
    _open(recorded, database).log([MetricPoint(9, 9, {"loss": float("-inf")})])
    assert _history(database, opened.run_id) == [(0, 1.0), (3, 0.5)]
    tags = _client(database).get_run(opened.run_id).data.tags
    assert tags["footplate.nonfinite.loss"] == "nan at step 1"


def test_status_follows_the_run(recorded: Recorded, database: str) -> None:
    """A run that ended and goes on is running again, and ends when its last attempt does."""
    opened = _open(recorded, database)
    opened.end("KILLED", 5000)
    info = _client(database).get_run(opened.run_id).info
    assert (info.status, info.start_time, info.end_time) == ("KILLED", 1_000_000, 5000)
    opened.resume()
    assert _client(database).get_run(opened.run_id).info.status == "RUNNING"
    opened.end("FAILED", 6000)
    info = _client(database).get_run(opened.run_id).info
    assert (info.status, info.end_time) == ("FAILED", 6000)


def test_an_unreachable_server_is_one_sentence(recorded: Recorded) -> None:
    """The message names the server and the cause, without the password in the URI."""
    with pytest.raises(TrackingError) as caught:
        _open(recorded, "http://me:secret@127.0.0.1:9")
    message = caught.value.message
    assert message.startswith("cannot reach MLflow at http://127.0.0.1:9: ")
    assert "refused" in message
    assert "secret" not in str(caught.value)
    assert "\n" not in message


def test_a_database_that_is_none_is_one_sentence(recorded: Recorded, tmp_path: Path) -> None:
    """The errors of the libraries below MLflow do not get through either."""
    (tmp_path / "mlflow.db").write_bytes(b"no database at all " * 100)
    with pytest.raises(TrackingError, match="refused to open it"):
        _open(recorded, f"sqlite:///{tmp_path}/mlflow.db")
