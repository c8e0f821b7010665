"""Running a job on this machine: a run in the store, and a driver that trains it."""

from __future__ import annotations

import socket
import sys
import time
import uuid
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from footplate.errors import MissingExtraError, RunBusyError
from footplate.runs.decide import Decision, decide, relevant
from footplate.runs.driver_process import DriverProcess, RunOutcome
from footplate.runs.history import PastRun, find_runs
from footplate.runs.lock import lock_file, locked
from footplate.runs.observer import Observer, SilentObserver
from footplate.runs.validate import check
from footplate.spec import Job
from footplate.store import Progress, RunRecord, Store, open_store, read_record_if_there
from footplate.tracking import code_identity

__all__ = ["LOCAL_NAMESPACE", "refuse_if_busy_elsewhere", "run"]

LOCAL_NAMESPACE = "local"

# A training process reports every second, but for long checkpoints and evaluations.
_SIGN_OF_LIFE_S = 300.0

# Each one sets a damaged checkpoint aside. If there are more, something else is wrong.
_MOST_FURTHER = 5

_NEEDED = ("mlflow", "numpy", "pyarrow", "ray", "torch")
_RECORDED = ("footplate", "ray", "torch", "mlflow", "pyarrow", "numpy")


def run(
    job: Job,
    *,
    fresh: bool = False,
    continue_changed: bool = False,
    source: str | None = None,
    observer: Observer | None = None,
) -> RunOutcome:
    """
    Train a job here, or go on with its unfinished run.

    Ctrl-C once saves a checkpoint and ends; twice ends at once. Either way the same call goes
    on later.

    Args:
        fresh: Start anew, whatever is there.
        continue_changed: Go on although the spec changed, if the changes are safe.
        source: The spec file, for the line numbers of problems.
        observer: Is told what happens.

    Raises:
        SpecError: If the job or what it names is wrong.
        MissingExtraError: If what trains is not installed.
        RunBusyError: If another process works on the job's runs.
    """
    observer = observer or SilentObserver()
    _check_installed()
    check(job, source or job.name)
    store = open_store(job)
    with locked(lock_file(store, LOCAL_NAMESPACE, job.name), job.name) as lock:
        runs = find_runs(store, LOCAL_NAMESPACE, job.name)
        spec = job.to_dict()
        past = relevant(runs, spec)
        if past is not None and store.folder is None:
            refuse_if_busy_elsewhere(past, store, now=time.time())
        decision = decide(past, spec, fresh=fresh, continue_changed=continue_changed)
        for note in decision.notes:
            observer.note(note)
        record = _record(job, decision, observer)
        return _driven(lambda: DriverProcess(job, record, store, lock, observer).run())


def _driven(attempt: Callable[[], RunOutcome]) -> RunOutcome:
    """Make an attempt, and more as long as the last one says that another one is of use."""
    outcome = attempt()
    for _ in range(_MOST_FURTHER):
        if not outcome.result.goes_on:
            break
        outcome = attempt()
    return outcome


def refuse_if_busy_elsewhere(
    past: PastRun, store: Store, *, now: float, silence_s: float = _SIGN_OF_LIFE_S
) -> None:
    """
    A bucket is shared by machines that don't share our lock: look for signs of life.

    Args:
        now: Seconds since the epoch.
        silence_s: After how long without a report an attempt counts as dead.

    Raises:
        RunBusyError: If another machine's attempt has not ended and was heard of lately.
    """
    if not past.claims or past.result is not None:
        return
    claim = past.claims[-1]
    paths = past.paths.attempt(claim.attempt)
    progress = read_record_if_there(store, paths.progress, Progress)
    silent_s = now - (progress.time if progress else claim.claimed)
    if claim.host != socket.gethostname() and silent_s < silence_s:
        raise RunBusyError(
            f"{past.record.name} is being worked on by process {claim.pid} of {claim.host}, "
            f"heard of {silent_s:.0f} s ago",
            "Wait for it, or give this run another name.",
        )


def _check_installed() -> None:
    missing = tuple(module for module in _NEEDED if find_spec(module) is None)
    if missing:
        raise MissingExtraError("train", missing)


def _record(job: Job, decision: Decision, observer: Observer) -> RunRecord:
    """The record of the run to work on: a new one, or the old one with the spec of today."""
    code = code_identity(Path(job.path(job.code)), job.module)
    values: dict[str, Any] = {"spec": job.to_dict(), "folder": str(job.folder)}
    if decision.resume is None:
        return RunRecord(
            uid=str(uuid.uuid4()),
            namespace=LOCAL_NAMESPACE,
            name=job.name,
            created=time.time(),
            code=code,
            versions=_versions(),
            **values,
        )
    if _code_digest(decision.resume) not in (None, code["digest"]):
        observer.note("the code changed since the last attempt; going on with what it saved")
    return decision.resume.record.model_copy(update=values)


def _code_digest(past: PastRun) -> Any:
    return past.claims[-1].code.get("digest") if past.claims else None


def _versions() -> dict[str, str]:
    versions = {"python": sys.version.partition(" ")[0]}
    for package in _RECORDED:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
