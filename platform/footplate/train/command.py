"""
A run whose training is a command: a script that brings its own trainer.

The driver gives it what every run has (an attempt of its own, a Ray cluster with its workers in
it, the MLflow run, a place for checkpoints) by environment variables, and makes of its exit code
how the attempt ended. :func:`footplate.train.attach` reads the variables.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import click

from footplate.errors import FootplateError, StoreError, UserCodeError
from footplate.store import End, to_json
from footplate.tracking import experiment_name, open_run, tracking_uri
from footplate.train.attempt import Attempt
from footplate.train.own_checkpoints import newest_own_checkpoint

__all__ = ["ATTEMPT", "JOB_FILE", "MLFLOW_RUN", "RANK_RESOURCES", "run_command"]

JOB_FILE = "FOOTPLATE_JOB_FILE"
"""Names the variable with the file that holds the run's record."""

ATTEMPT = "FOOTPLATE_ATTEMPT"
"""Names the variable with the number of the attempt."""

RANK_RESOURCES = "FOOTPLATE_RANK_RESOURCES"
"""Names the variable with what Ray is to reserve for each rank, as JSON."""

MLFLOW_RUN = "FOOTPLATE_MLFLOW_RUN_ID"
"""Names the variable with MLflow's identity of the run, which MLflow removes from its own."""

# Ray's own name for what a job hands to its driver.
_RAY_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_LABEL = "[command] "
_TAIL_LINES = 15
_LOOK_S = 1.0
# For a trainer to shut its workers down.
_STOPPING_S = 30.0
_REST_OF_OUTPUT_S = 5.0


def run_command(
    attempt: Attempt, scratch: Path, per_rank: Mapping[str, float], *, ray_address: str | None
) -> End:
    """
    Run the command of a job to its end.

    Args:
        scratch: A folder for this run of it alone.
        per_rank: What Ray is to reserve for each rank.
        ray_address: Of the Ray that it shall use, if its environment does not say.

    Raises:
        UserCodeError: If it fails.
    """
    command = attempt.job.command
    assert command is not None
    environment = {**os.environ, **_variables(attempt, scratch, ray_address)}
    environment[RANK_RESOURCES] = json.dumps(dict(per_rank))
    attempt.stage("training", shlex.join(command))
    try:
        process = subprocess.Popen(
            command,
            cwd=attempt.code,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise UserCodeError(
            f"{shlex.join(command)} can't be started: {error}", "Check command in the spec."
        ) from error
    code, stopped, tail = _followed(process, attempt)
    if code and not stopped:
        raise UserCodeError(_ended(command, code, tail), "Fix it, and run again.")
    checkpoint = newest_own_checkpoint(attempt.store, attempt.paths)
    return End(stopped=stopped, step=0, epochs=0.0, checkpoint=checkpoint)


def _followed(process: subprocess.Popen[bytes], attempt: Attempt) -> tuple[int, bool, deque[str]]:
    """Its exit code, whether it was stopped on purpose, and the last of what it printed."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    assert process.stdout is not None
    reader = threading.Thread(target=_forward, args=(process.stdout, tail), daemon=True)
    reader.start()
    stopped = False
    while True:
        try:
            code = process.wait(_LOOK_S)
            break
        except subprocess.TimeoutExpired:
            if not stopped and _is_asked_to_stop(attempt):
                stopped = True
                process.send_signal(signal.SIGINT)
                threading.Timer(_STOPPING_S, process.kill).start()
    # Its end of the pipe stays open if a child of it lives on.
    reader.join(_REST_OF_OUTPUT_S)
    return code, stopped, tail


def _forward(output: IO[bytes], tail: deque[str]) -> None:
    with output:
        for content in output:
            line = content.decode(errors="replace").rstrip("\n")
            tail.append(line)
            click.echo(f"{_LABEL}{line}")


def _is_asked_to_stop(attempt: Attempt) -> bool:
    try:
        return attempt.store.size(attempt.paths.stop) is not None
    except StoreError:
        return False


def _ended(command: tuple[str, ...], code: int, tail: deque[str]) -> str:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    lines = "\n".join(f"  {line}" for line in tail)
    return f"{shlex.join(command)} {how}; its last output:\n{lines}"


def _variables(attempt: Attempt, scratch: Path, ray_address: str | None) -> dict[str, str]:
    record = attempt.record.model_copy(update={"folder": str(attempt.job.folder)})
    job_file = scratch / "job.json"
    job_file.write_bytes(to_json(record))
    variables = {
        "FOOTPLATE_JOB_UID": record.uid,
        "FOOTPLATE_RUN_NAME": record.name,
        "FOOTPLATE_NAMESPACE": record.namespace,
        ATTEMPT: str(attempt.claim.attempt),
        JOB_FILE: str(job_file),
        # "python" is the one that runs this, and what it prints is seen at once.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
    }
    if ray_address is not None:
        variables["RAY_ADDRESS"] = ray_address
    if "archive" in record.code:
        variables |= _shipped_code(attempt.code, os.environ)
    return variables | _mlflow(attempt)


def _shipped_code(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Lets Ray bring the code to the nodes where the script's own ranks run."""
    config = json.loads(inherited.get(_RAY_JOB_CONFIG, "{}"))
    config["runtime_env"] = {**config.get("runtime_env", {}), "working_dir": str(folder)}
    # A script that names a runtime environment itself is right.
    return {_RAY_JOB_CONFIG: json.dumps(config), "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}


def _mlflow(attempt: Attempt) -> dict[str, str]:
    """What lets ``mlflow.start_run()`` go on with the run of this Job UID."""
    uri = tracking_uri(attempt.job)
    if uri is None:
        return {}
    experiment = experiment_name(attempt.job)
    try:
        run = open_run(uri, experiment, store=attempt.store, run=attempt.run, record=attempt.record)
    except FootplateError as error:
        attempt.note(f"the command is not told of its MLflow run: {error.message}")
        return {}
    return {
        "MLFLOW_TRACKING_URI": uri,
        "MLFLOW_EXPERIMENT_NAME": experiment,
        "MLFLOW_RUN_ID": run.run_id,
        MLFLOW_RUN: run.run_id,
    }
