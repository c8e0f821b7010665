"""`footplate tracking` brings MLflow up to date and says what it sent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from footplate.cli.tracking import command
from footplate.errors import FootplateError, RunNotFoundError, SpecError, TrackingError
from footplate.store import AttemptResult, Claim, RunPaths, RunRecord, Store, claim_next, to_json
from footplate.tracking import MetricLog, MetricPoint

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")

_SPEC = """
name = "digits"
entrypoint = "digits:train"
[limits]
epochs = 1
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec with two runs in its store, the newer one called ``new``; both have 3 points."""
    file = tmp_path / "digits.toml"
    file.write_text(_SPEC)
    store = Store(str(tmp_path / ".footplate" / "runs"))
    for uid, created in (("new", 2000.0), ("old", 1000.0)):
        _record(store, RunPaths(namespace="local", name="digits", uid=uid), created)
    return file


def _record(store: Store, run: RunPaths, created: float) -> None:
    values = {"name": run.name, "entrypoint": "digits:train"}
    record = RunRecord(uid=run.uid, namespace="local", name=run.name, created=created, spec=values)
    store.put(run.record, to_json(record))
    claim = Claim(attempt=1, token=run.uid, host="h", pid=1, claimed=created, spec=values)
    claim_next(store, run, claim)
    log = MetricLog(store, run.attempt(1))
    for step in (1, 2, 3):
        log.append(MetricPoint(step, step, {"loss": 1 / step}))
    log.flush()
    ended = AttemptResult(status="succeeded", started=created, ended=created + 60)
    store.put(run.attempt(1).result, to_json(ended))


def _sync(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, ["sync", *map(str, arguments)])


def _error(*arguments: str | Path) -> FootplateError:
    error = _sync(*arguments).exception
    assert isinstance(error, FootplateError)
    return error


def test_all_incomplete_runs_are_sent(spec: Path, tmp_path: Path) -> None:
    """One command after an outage is enough, and a script can read what it did."""
    done = _sync(spec, "-o", "json")
    assert done.exit_code == 0
    results = json.loads(done.stdout)
    assert [(result["uid"], result["points_sent"]) for result in results] == [
        ("new", 3),
        ("old", 3),
    ]
    assert {result["uri"] for result in results} == {f"sqlite:///{tmp_path}/.footplate/mlflow.db"}
    assert {result["status"] for result in results} == {"FINISHED"}
    assert json.loads(_sync(spec, "-o", "json").stdout) == []
    assert "MLflow has everything of digits" in _sync(spec).stderr


def test_people_get_a_table_and_how_to_open_it(spec: Path, tmp_path: Path) -> None:
    """What was sent, of which run, and the line that shows it."""
    done = _sync(spec, "--uid", "old")
    heading, row, *rest = done.stdout.splitlines()
    assert heading.split() == ["UID", "POINTS", "SENT", "MLFLOW", "RUN", "STATE"]
    assert row.split()[:2] == ["old", "3"]
    assert row.split()[3:] == ["FINISHED"]
    assert rest == []
    assert f"mlflow ui --backend-store-uri sqlite:///{tmp_path}/.footplate/mlflow.db" in done.stderr


def test_a_run_that_is_not_there_is_an_error(spec: Path) -> None:
    """A typing error in the UID is told, with its own exit code."""
    assert isinstance(_error(spec, "--uid", "mistyped"), RunNotFoundError)


def test_an_unreachable_server_is_an_error(spec: Path) -> None:
    """Nothing is claimed to have arrived that has not."""
    error = _error(spec, "--set", "tracking.uri=http://127.0.0.1:9")
    assert isinstance(error, TrackingError)
    assert error.exit_code == 15


def test_a_bucket_without_a_server_is_refused(spec: Path) -> None:
    """There is no place to send to; the message names the key that says where."""
    error = _error(spec, "--set", "store.uri=s3://bucket/runs")
    assert isinstance(error, SpecError)
    assert error.problems[0].where == "tracking.uri"


def test_without_mlflow_the_line_that_installs_it_is_shown(spec: Path) -> None:
    """The base install has the command; what it needs is one pip line away."""
    script = "import sys; sys.modules['mlflow'] = None; from footplate.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "tracking", "sync", spec],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "pip install 'footplate[train]'" in done.stderr
    assert "Traceback" not in done.stderr
