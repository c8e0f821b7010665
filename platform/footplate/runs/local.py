"""Running a job on this machine: a run in the store, and a driver that trains it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Protocol

from footplate.errors import MissingExtraError
from footplate.runs.decide import Decision, decide
from footplate.runs.environment import local_environment
from footplate.runs.history import PastRun, find_runs
from footplate.runs.lock import lock_file, locked
from footplate.runs.validate import check
from footplate.spec import Job
from footplate.store import (
    AttemptResult,
    Failure,
    Progress,
    RunPaths,
    RunRecord,
    Store,
    attempt_numbers,
    read_record_if_there,
    to_json,
)
from footplate.tracking import code_identity

__all__ = ["LOCAL_NAMESPACE", "Observer", "RunOutcome", "open_store", "run"]

LOCAL_NAMESPACE = "local"

_NEEDED = ("mlflow", "numpy", "pyarrow", "ray", "safetensors", "torch", "xxhash")
_RECORDED = ("footplate", "ray", "torch", "mlflow", "pyarrow", "numpy")
_POLL_S = 0.2
_TAIL_LINES = 15


class Observer(Protocol):
    """Who watches a run; see :class:`SilentObserver` for one that does not."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def started(self, run: RunPaths, attempt: int, log: Path) -> None:
        """An attempt begins; its output goes to ``log``."""

    def progress(self, progress: Progress) -> None:
        """Where it is now; called several times a second."""


class SilentObserver:
    """Watches nothing."""

    def note(self, text: str) -> None:
        """Drop it."""

    def started(self, run: RunPaths, attempt: int, log: Path) -> None:
        """Drop it."""

    def progress(self, progress: Progress) -> None:
        """Drop it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOutcome:
    """
    How running a job ended.

    Attributes:
        run: Where the run stands in the store.
        attempt: Number of this attempt.
        result: What its driver wrote.
        log: What it printed.
        exit_code: 0 succeeded, 130 stopped, otherwise that of the error.
    """

    run: RunPaths
    attempt: int
    result: AttemptResult
    log: Path
    exit_code: int


def open_store(job: Job) -> Store:
    """The store of a job."""
    return Store(job.path(job.store.uri), endpoint=job.store.endpoint, region=job.store.region)


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
        past = find_runs(store, LOCAL_NAMESPACE, job.name)
        decision = decide(
            past[-1] if past else None,
            job.to_dict(),
            fresh=fresh,
            continue_changed=continue_changed,
        )
        for note in decision.notes:
            observer.note(note)
        record = _record(job, decision, observer)
        return _Attempt(job, record, store, lock, observer).make()


def _check_installed() -> None:
    missing = tuple(module for module in _NEEDED if find_spec(module) is None)
    if missing:
        raise MissingExtraError("train", missing)


def _record(job: Job, decision: Decision, observer: Observer) -> RunRecord:
    """The record of the run to work on: a new one, or the old one with the spec of today."""
    code = code_identity(Path(job.path(job.code)))
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


class _Attempt:
    """One life of the driver, seen from the process that started it."""

    def __init__(
        self, job: Job, record: RunRecord, store: Store, lock: int, observer: Observer
    ) -> None:
        self._job = job
        self._record = record
        self._store = store
        self._lock = lock
        self._observer = observer
        self._run = RunPaths(namespace=record.namespace, name=record.name, uid=record.uid)
        claimed = attempt_numbers(store, self._run)
        self._number = claimed[-1] + 1 if claimed else 1
        self._paths = self._run.attempt(self._number)
        self._stops = 0

    def make(self) -> RunOutcome:
        if self._store.size(self._run.record) is None:
            self._store.create(self._run.record, to_json(self._record))
        with ExitStack() as stack:
            log = self._log_file(stack)
            self._observer.started(self._run, self._number, log)
            output = stack.enter_context(log.open("ab"))
            job_file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".json"))
            job_file.write(to_json(self._record))
            job_file.flush()
            driver = self._start(Path(job_file.name), output)
            stack.callback(_end, driver)
            code = self._follow(driver)
        return self._outcome(code, log)

    def _log_file(self, stack: ExitStack) -> Path:
        folder = self._store.folder
        if folder is None:
            folder = Path(tempfile.gettempdir()) / f"footplate-{os.getuid()}"
        log = folder / self._run.log(self._number)
        log.parent.mkdir(parents=True, exist_ok=True)
        return log

    def _start(self, job_file: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
        command = ["-P", "-m", "footplate.train", "--job", str(job_file), "--local"]
        return subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,  # closed by the system when this process dies
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process to handle
            pass_fds=(self._lock,),
            env=local_environment(self._job, os.environ, os.cpu_count() or 1),
        )

    def _follow(self, driver: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return self._watch(driver)
            except KeyboardInterrupt:
                self._stop(driver)

    def _watch(self, driver: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return driver.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                progress = read_record_if_there(self._store, self._paths.progress, Progress)
                if progress is not None:
                    self._observer.progress(progress)

    def _stop(self, driver: subprocess.Popen[bytes]) -> None:
        """Ctrl-C: let the ranks save and end; the second time, or before they train, end now."""
        progress = read_record_if_there(self._store, self._paths.progress, Progress)
        self._stops += 1
        if self._stops == 1 and progress is not None and progress.stage in _CAN_SAVE:
            self._store.put(self._paths.stop, b"{}")
            self._observer.note("saving a checkpoint, then stopping; Ctrl-C again stops at once")
        else:
            driver.kill()

    def _outcome(self, code: int, log: Path) -> RunOutcome:
        result = read_record_if_there(self._store, self._paths.result, AttemptResult)
        if result is None:
            result = self._without_result(code, log)
        exit_code = _INTERRUPTED if result.status == "interrupted" else 0
        if result.failure is not None:
            exit_code = result.failure.exit_code
        return RunOutcome(
            run=self._run, attempt=self._number, result=result, log=log, exit_code=exit_code
        )

    def _without_result(self, code: int, log: Path) -> AttemptResult:
        """The driver died before it could say how it ended."""
        now = time.time()
        if self._stops:
            return AttemptResult(status="interrupted", started=now, ended=now)
        ended_by = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        failure = Failure(
            time=now,
            error="DriverLost",
            category="process_killed_unknown",
            message=f"the driver {ended_by} without a result; its last output:\n{_tail(log)}",
            hint="Run again: training goes on from the last checkpoint.",
            exit_code=code if 0 < code < 128 else 16,
        )
        return AttemptResult(status="failed", started=now, ended=now, failure=failure)


_INTERRUPTED = 130
_CAN_SAVE = ("training", "evaluating", "saving", "finishing")


def _end(driver: subprocess.Popen[bytes]) -> None:
    """Nothing of a run outlives the process that started it."""
    if driver.poll() is None:
        driver.kill()
    driver.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(f"  {line}" for line in lines)
