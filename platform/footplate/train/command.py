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
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import click

from footplate.errors import (
    FootplateError,
    StoreError,
    TrainingError,
    UserCodeError,
    WorkerLostError,
)
from footplate.failures import is_own_mistake, is_worker_loss
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
# Ray has more to say, for each rank.
_KEPT_LINES = 500
_LOOK_S = 1.0
# For a trainer to shut its workers down.
_STOPPING_S = 30.0
_REST_OF_OUTPUT_S = 5.0
# Ray looks every three seconds, and takes a node for lost that has not answered five times.
_NODE_LOSS_S = 20.0
# As the system has it, and as shells have it of what they started.
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_GO_ON = "Run again: what its trainer has saved is kept."


def run_command(
    attempt: Attempt,
    scratch: Path,
    per_rank: Mapping[str, float],
    *,
    ray_address: str | None,
    living: Callable[[], frozenset[str]] | None = None,
) -> End:
    """
    Run the command of a job to its end.

    Args:
        scratch: A folder for this run of it alone.
        per_rank: What Ray is to reserve for each rank.
        ray_address: Of the Ray that it shall use, if its environment does not say.
        living: The nodes that live now; None where no other can be lost than this one.

    Raises:
        WorkerLostError: If it is killed, or fails when nodes or processes of Ray's were lost.
        UserCodeError: If it fails by itself.
    """
    command = attempt.job.command
    assert command is not None
    environment = {**os.environ, **_variables(attempt, scratch, ray_address)}
    environment[RANK_RESOURCES] = json.dumps(dict(per_rank))
    attempt.stage("training", shlex.join(command))
    nodes = living() if living else frozenset()
    try:
        process = subprocess.Popen(
            command,
            cwd=attempt.code,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,  # a shell does not hand on what it is told
        )
    except OSError as error:
        raise UserCodeError(
            f"{shlex.join(command)} can't be started: {error}", "Check command in the spec."
        ) from error
    code, stopped, tail = _followed(process, attempt)
    if code and not stopped:
        lost = _lost(nodes, living) if living and not is_own_mistake(tail) else 0
        raise _failure(shlex.join(command), code, tail, lost)
    checkpoint = newest_own_checkpoint(attempt.store, attempt.paths)
    return End(stopped=stopped, step=0, epochs=0.0, checkpoint=checkpoint)


def _followed(process: subprocess.Popen[bytes], attempt: Attempt) -> tuple[int, bool, list[str]]:
    """Its exit code, whether it was stopped on purpose, and the last of what it printed."""
    tail: deque[str] = deque(maxlen=_KEPT_LINES)
    assert process.stdout is not None
    reader = threading.Thread(target=_forward, args=(process.stdout, tail), daemon=True)
    reader.start()
    deadline: float | None = None
    while (code := _ended_within(_LOOK_S, process)) is None:
        if deadline is None and _is_asked_to_stop(attempt):
            deadline = time.monotonic() + _STOPPING_S
            _signal(process, signal.SIGINT)
        elif deadline is not None and time.monotonic() > deadline:
            _signal(process, signal.SIGKILL)
    if code or deadline is not None:
        # Nothing of it may work on beside what follows.
        _signal(process, signal.SIGKILL)
    # Its end of the pipe stays open if a child of it lives on.
    reader.join(_REST_OF_OUTPUT_S)
    return code, deadline is not None, list(tail)


def _ended_within(seconds: float, process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Tell the command and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


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


def _lost(before: frozenset[str], living: Callable[[], frozenset[str]]) -> int:
    """How many nodes have been lost; the script may have noticed it before Ray says so."""
    deadline = time.monotonic() + _NODE_LOSS_S
    while not (lost := before - living()) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return len(lost)


def _failure(command: str, code: int, tail: Sequence[str], lost: int) -> TrainingError:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    if lost:
        how += f" after {lost} {'node was' if lost == 1 else 'nodes were'} lost"
    lines = "\n".join(f"  {line}" for line in tail[-_TAIL_LINES:])
    message = f"{command} {how}; its last output:\n{lines}"
    if lost:
        return WorkerLostError(message, _GO_ON)
    if code in _KILLED:
        return WorkerLostError(message, f"Usual causes: killed for memory, or by hand. {_GO_ON}")
    if is_worker_loss(tail):
        causes = "killed for memory, killed by hand, an exit inside the code"
        return WorkerLostError(
            message, f"Ray lost processes of it. Usual causes: {causes}. {_GO_ON}"
        )
    return UserCodeError(message, "Fix it, and run again.")


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
