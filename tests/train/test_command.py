"""A command as the training of a run: what it is given, and what becomes of its end."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from footplate.errors import TrainingError, UserCodeError, WorkerLostError
from footplate.spec import Job
from footplate.store import Progress, RunRecord, Store, read_record
from footplate.train.attempt import Attempt, claim_attempt
from footplate.train.command import run_command

_PRINT_ENVIRONMENT = """
import json, os
names = ("FOOTPLATE", "MLFLOW", "RAY")
print(json.dumps({k: v for k, v in os.environ.items() if k.startswith(names)}))
print(os.getcwd())
"""

# Asks itself to stop, once it is able to.
_STOPPED_WHEN_IT_CAN_BE = """
import sys, time
try:
    open(sys.argv[1], "w").close()
    time.sleep(60)
except KeyboardInterrupt:
    print("told")
    raise SystemExit(5)
"""

_PER_RANK = {"CPU": 1.5}
Claimed = Callable[..., Attempt]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """MLflow's, for all tests here: to make one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def claimed(tmp_path: Path, database: str) -> Claimed:
    """Claims attempts of runs whose command is a program of Python."""

    def claim(program: str) -> Attempt:
        spec = {
            "name": "own",
            "command": ["python", "own.py"],
            "store": {"uri": "runs"},
            "tracking": {"uri": database, "experiment": "spirals"},
            "code": "code",
        }
        (tmp_path / "code").mkdir(exist_ok=True)
        (tmp_path / "code" / "own.py").write_text(program)
        record = RunRecord(uid="uid", namespace="team", name="own", created=1.0, spec=spec)
        job = Job.from_dict(spec, folder=tmp_path, source="own")
        return claim_attempt(record, job, Store(str(tmp_path / "runs")))

    return claim


def test_a_command_knows_its_run(
    claimed: Claimed, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs in the code's folder, by this Python, and goes on with the run's own MLflow run."""
    attempt = claimed(_PRINT_ENVIRONMENT)
    end = run_command(attempt, tmp_path, _PER_RANK, ray_address="127.0.0.1:6379")
    assert (end.stopped, end.checkpoint) == (False, None)
    first, folder = capsys.readouterr().out.splitlines()
    assert folder == f"[command] {tmp_path / 'code'}"
    environment = json.loads(first.removeprefix("[command] "))
    (run,) = MlflowClient(database).search_runs(["1"])
    assert run.data.tags["footplate.job_uid"] == "uid"
    expected = {
        "FOOTPLATE_JOB_UID": "uid",
        "FOOTPLATE_RUN_NAME": "own",
        "FOOTPLATE_NAMESPACE": "team",
        "FOOTPLATE_ATTEMPT": "1",
        "FOOTPLATE_JOB_FILE": str(tmp_path / "job.json"),
        "MLFLOW_TRACKING_URI": database,
        "MLFLOW_EXPERIMENT_NAME": "spirals",
        "MLFLOW_RUN_ID": run.info.run_id,
        "FOOTPLATE_RANK_RESOURCES": '{"CPU": 1.5}',
        "RAY_ADDRESS": "127.0.0.1:6379",
    }
    assert environment.items() >= expected.items()
    progress = read_record(attempt.store, attempt.paths.progress, Progress)
    assert (progress.stage, progress.detail) == ("training", "python own.py")


def test_python_is_the_one_that_runs_this(
    claimed: Claimed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever else is first on the path."""
    run_command(claimed("import sys; print(sys.prefix)"), tmp_path, _PER_RANK, ray_address=None)
    assert capsys.readouterr().out == f"[command] {sys.prefix}\n"


@pytest.mark.parametrize(
    ("end", "error", "how"),
    [
        ("raise SystemExit(3)", UserCodeError, "ended with exit code 3"),
        ("raise SystemExit(137)", WorkerLostError, "ended with exit code 137"),
        ("os.kill(os.getpid(), 9)", WorkerLostError, "was killed by signal 9"),
        ("os.kill(os.getpid(), 11)", UserCodeError, "was killed by signal 11"),
    ],
)
def test_a_failure_is_told_with_its_last_words(
    claimed: Claimed, tmp_path: Path, end: str, error: type[TrainingError], how: str
) -> None:
    """
    What went wrong is what the script printed before it ended.

    SIGKILL, of the script or of what a shell has started, is sent by no script of itself.
    """
    program = f"import os; print('one'); print('two'); {end}"
    with pytest.raises(TrainingError) as failed:
        run_command(claimed(program), tmp_path, _PER_RANK, ray_address=None)
    assert type(failed.value) is error
    assert failed.value.message.splitlines() == [
        f"python own.py {how}; its last output:",
        "  one",
        "  two",
    ]


def test_a_failure_after_the_loss_of_a_node_is_not_the_scripts(
    claimed: Claimed, tmp_path: Path
) -> None:
    """The script may notice it before Ray says so."""
    seen = iter(["abc", "abc", "ac"])
    with pytest.raises(WorkerLostError, match="ended with exit code 1 after 1 node was lost"):
        run_command(
            claimed("raise SystemExit(1)"),
            tmp_path,
            _PER_RANK,
            ray_address=None,
            living=lambda: frozenset(next(seen)),
        )


def test_a_failure_for_a_process_that_ray_has_lost_is_not_the_scripts(
    claimed: Claimed, tmp_path: Path
) -> None:
    """The node lives, and the worker on it was killed; all that says so is Ray's error."""
    program = "import ray\nprint('one')\nraise ray.exceptions.WorkerCrashedError"
    with pytest.raises(WorkerLostError, match="ended with exit code 1; its last output") as failed:
        run_command(claimed(program), tmp_path, _PER_RANK, ray_address=None)
    assert failed.value.hint.startswith("Ray lost processes of it.")


def test_a_mistake_in_the_script_is_told_at_once(claimed: Claimed, tmp_path: Path) -> None:
    """No node is looked for that could have been lost."""
    seen = iter(["ab"])
    with pytest.raises(UserCodeError, match="NameError: name 'undefined' is not defined"):
        run_command(
            claimed("print(undefined)"),
            tmp_path,
            _PER_RANK,
            ray_address=None,
            living=lambda: frozenset(next(seen)),
        )


def test_a_script_that_survives_the_loss_of_a_node_succeeds(
    claimed: Claimed, tmp_path: Path
) -> None:
    """Its own trainer may know how to go on."""
    seen = iter(["ab", "bc"])
    end = run_command(
        claimed(""),
        tmp_path,
        _PER_RANK,
        ray_address=None,
        living=lambda: frozenset(next(seen)),
    )
    assert not end.stopped


def test_a_command_that_is_not_there_is_named(claimed: Claimed, tmp_path: Path) -> None:
    """The system's own words would not say which."""
    attempt = claimed("")
    elsewhere = dataclasses.replace(attempt, job=attempt.job.replace(command=["no-such-program"]))
    with pytest.raises(UserCodeError, match="no-such-program can't be started"):
        run_command(elsewhere, tmp_path, _PER_RANK, ray_address=None)


def test_asked_to_stop_it_is_interrupted(claimed: Claimed, tmp_path: Path) -> None:
    """As by Ctrl-C, so that it can put its things in order; that is no failure."""
    attempt = claimed(
        "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    raise SystemExit(5)"
    )
    attempt.store.put(attempt.paths.stop, b"{}")
    assert run_command(attempt, tmp_path, _PER_RANK, ray_address=None).stopped


def test_asked_to_stop_a_shell_ends_with_what_it_has_started(
    claimed: Claimed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell would keep the word to itself, and leave its children behind."""
    attempt = claimed(_STOPPED_WHEN_IT_CAN_BE)
    place = attempt.store.locate(attempt.paths.stop)
    shell = attempt.job.replace(command=["bash", "-c", f"python own.py {place}; exit 6"])
    attempt = dataclasses.replace(attempt, job=shell)
    assert run_command(attempt, tmp_path, _PER_RANK, ray_address=None).stopped
    assert "[command] told" in capsys.readouterr().out
