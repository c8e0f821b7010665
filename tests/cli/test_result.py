"""What a run shows when it has ended."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from footplate.checkpoints import CheckpointManifest
from footplate.checkpoints.publish import commit
from footplate.cli._result import _tracking, print_failure, print_outcome
from footplate.runs import RunOutcome
from footplate.spec import Job
from footplate.store import AttemptResult, Claim, Failure, RunPaths, claim_next, open_store

RUN = RunPaths(namespace="local", name="digits", uid="uid-1")
TRACKED = {"complete": True, "run_id": "abc123", "experiment": "digits", "url": None}
FAILURE = Failure(
    time=1.0,
    rank=0,
    step=7,
    error="UserCodeError",
    category="user_code",
    message="ValueError on rank 0 after step 7: [bold]x[/bold]",
    hint="Fix it and run again.",
    trace="Traceback (most recent call last):\n  train.py, line 3\nValueError: x\n",
    exit_code=10,
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job whose store is in a folder of its own."""
    spec = {"name": "digits", "entrypoint": "digits:train", "limits": {"epochs": 2}}
    return Job.from_dict(spec, folder=tmp_path, source="test")


def _outcome(folder: Path, exit_code: int, **values: Any) -> RunOutcome:
    log = folder / "attempt-0002.log"
    log.write_bytes(b"first line\n\xff last line\n")
    result = AttemptResult(started=1000.0, ended=1065.0, **({"tracking": TRACKED} | values))
    return RunOutcome(run=RUN, attempt=2, result=result, log=log, exit_code=exit_code)


def _rows(job: Job, outcome: RunOutcome, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What stands behind each label; behind ``label+`` what stands in the line below it."""
    print_outcome(job, outcome, "my jobs/digits.toml")
    captured = capsys.readouterr()
    assert captured.err == ""
    rows: dict[str, str] = {}
    label = ""
    for line in captured.out.splitlines():
        label = f"{label}+" if line.startswith(" ") else line.split()[0]
        rows[label] = line.strip() if line.startswith(" ") else line.split(maxsplit=1)[1]
    return rows


def _commit(job: Job, step: int) -> None:
    store = open_store(job)
    manifest = CheckpointManifest(
        step=step, position=step, epoch=0, attempt=1, world_size=1, written=1.0
    )
    commit(store, RUN, manifest)


def test_success_tells_what_was_reached(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps, epochs, time, metrics, and where to find checkpoints, MLflow and the log."""
    claim = Claim(attempt=1, token=RUN.uid, host="h", pid=1, claimed=1.0, spec={})
    claim_next(open_store(job), RUN, claim)
    _commit(job, 500)
    _commit(job, 2500)
    outcome = _outcome(
        tmp_path,
        0,
        status="succeeded",
        steps=2500,
        epochs=2.5,
        metrics={"valid.accuracy": 0.98765, "loss": float("nan")},
    )
    rows = _rows(job, outcome, capsys)
    assert list(rows) == [
        "run",
        "status",
        "loss",
        "valid.accuracy",
        "checkpoints",
        "checkpoints+",
        "MLflow",
        "MLflow+",
        "log",
    ]
    assert rows["run"] == "digits uid-1, attempt 2"
    assert rows["status"] == "succeeded: 2500 steps, 2.5 epochs; this attempt 1m05s"
    assert rows["valid.accuracy"] == "0.9877"
    assert rows["loss"] == "nan"
    assert re.fullmatch(r"2, \d+ B; newest step-00002500.a0001", rows["checkpoints"])
    assert rows["checkpoints+"] == str(tmp_path / ".footplate" / "runs" / RUN.checkpoints)
    assert rows["MLflow"] == "run abc123 in experiment digits"
    command, _, database = rows["MLflow+"].partition(" ui --backend-store-uri ")
    assert command.startswith("open: ")
    assert command.endswith("mlflow")
    assert database == f"sqlite:///{tmp_path}/.footplate/mlflow.db"
    assert rows["log"] == str(outcome.log)


def test_an_interruption_says_how_to_go_on(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And that nothing was saved yet, if so."""
    rows = _rows(job, _outcome(tmp_path, 130, status="interrupted", steps=7), capsys)
    assert rows["status"] == "stopped after step 7; run the same command to start over"
    assert rows["checkpoints"] == "none yet"


def test_a_failure_has_its_table_too(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """How far it came, from where it goes on, and where the log is."""
    claim = Claim(attempt=1, token=RUN.uid, host="h", pid=1, claimed=1.0, spec={})
    claim_next(open_store(job), RUN, claim)
    _commit(job, 5)
    outcome = _outcome(tmp_path, 10, status="failed", steps=7, failure=FAILURE)
    rows = _rows(job, outcome, capsys)
    assert rows["status"] == "failed after step 7; run the same command to go on from step 5"
    assert rows["log"] == str(outcome.log)


def test_an_incomplete_record_says_why_and_how_to_complete_it(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training was not held up by MLflow, so this is where it is told."""
    refused = {"complete": False, "error": "connection refused"}
    rows = _rows(job, _outcome(tmp_path, 0, status="succeeded", tracking=refused), capsys)
    assert rows["MLflow"] == "incomplete: connection refused"
    assert rows["MLflow+"] == "send the rest: footplate tracking sync 'my jobs/digits.toml'"
    rows = _rows(job, _outcome(tmp_path, 1, status="failed", tracking={}), capsys)
    assert rows["MLflow"] == "incomplete: the driver ended before it could tell"


def test_a_failure_is_told_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user's traceback, the message as it is, what to do; the log only for who asks."""
    outcome = _outcome(tmp_path, 10, status="failed", failure=FAILURE)
    print_failure(outcome, debug=False)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "\nTraceback (most recent call last):\n  train.py, line 3\nValueError: x\n"
        "\nfootplate: ValueError on rank 0 after step 7: [bold]x[/bold]\nFix it and run again.\n"
    )
    print_failure(outcome, debug=True)
    assert "first line\n\ufffd last line" in capsys.readouterr().err


def test_a_failure_without_traceback_or_hint_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing empty is printed in their place."""
    bare = Failure(time=1.0, error="StoreError", category="c", message="cannot write")
    print_failure(_outcome(tmp_path, 13, status="failed", failure=bare), debug=False)
    assert capsys.readouterr().err == "\nfootplate: cannot write\n"


def test_paths_can_be_copied(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However narrow the terminal, no line is broken by us."""
    monkeypatch.setenv("COLUMNS", "40")
    outcome = _outcome(tmp_path, 130, status="interrupted")
    assert _rows(job, outcome, capsys)["log"] == str(outcome.log)


def test_a_bucket_without_tracking_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not being used is no incompleteness."""
    spec = {"name": "digits", "entrypoint": "digits:train", "limits": {"epochs": 2}}
    values = spec | {"store": {"uri": "s3://bucket/runs"}}
    job = Job.from_dict(values, folder=tmp_path, source="test")
    outcome = _outcome(tmp_path, 0, status="succeeded", tracking={})
    [(_, told)] = _tracking(job, outcome, "spec.toml")
    assert told == "not used: the spec has no tracking.uri"
