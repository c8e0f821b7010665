"""Starting the driver on this machine, following it, and learning how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import IO

from footplate.errors import StoreError, WorkerLostError
from footplate.processes import kill_session
from footplate.runs.environment import local_environment
from footplate.runs.observer import Observer
from footplate.spec import Job
from footplate.store import (
    AttemptResult,
    Failure,
    Notes,
    Progress,
    RunPaths,
    RunRecord,
    Store,
    attempt_numbers,
    read_record_if_there,
    to_json,
)

__all__ = ["DriverProcess", "RunOutcome"]

# A copy of the result on another disk than the store's, which may be full or gone.
_RESULT = "result.json"
_POLL_S = 0.2
_TAIL_LINES = 15
_INTERRUPTED = 130
_CAN_SAVE = ("training", "evaluating", "saving", "finishing")


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


class DriverProcess:
    """
    One life of the driver, seen from the process that starts it.

    Args:
        record: The run, with the spec of today.
        lock: File descriptor that the driver inherits, so that the lock outlives this process.
        observer: Is told what happens.
    """

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
        self._noted = 0
        self._started = time.time()

    def run(self) -> RunOutcome:
        """Start it and wait for its end; a first Ctrl-C lets it save, a second kills it."""
        if self._store.size(self._run.record) is None:
            self._store.create(self._run.record, to_json(self._record))
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(TemporaryDirectory(prefix="footplate-")))
            log = self._log_file()
            self._observer.started(self._run, self._number, log)
            output = stack.enter_context(log.open("ab"))
            driver = self._start(scratch, output)
            stack.callback(_end, driver)
            code = self._follow(driver)
            self._look()
            return self._outcome(code, log, scratch / _RESULT)

    def _log_file(self) -> Path:
        folder = self._store.folder
        if folder is None:
            folder = Path(gettempdir()) / f"footplate-{os.getuid()}"
        log = folder / self._run.log(self._number)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
        except OSError as error:
            raise StoreError(f"cannot write {log}: {error.strerror}") from error
        return log

    def _start(self, scratch: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
        job_file = scratch / "job.json"
        job_file.write_bytes(to_json(self._record))
        arguments = ["--job", str(job_file), "--result", str(scratch / _RESULT), "--local"]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "footplate.train", *arguments],
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
                self._look()

    def _look(self) -> None:
        """Hand on what the driver and the ranks have written since the last look."""
        notes = read_record_if_there(self._store, self._paths.notes, Notes) or Notes()
        for line in notes.lines[self._noted :]:
            self._observer.note(line)
        self._noted = len(notes.lines)
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
            kill_session(driver.pid)

    def _outcome(self, code: int, log: Path, copy: Path) -> RunOutcome:
        result = read_record_if_there(self._store, self._paths.result, AttemptResult)
        if result is None and copy.exists():
            result = AttemptResult.model_validate_json(copy.read_bytes())
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
        progress = read_record_if_there(self._store, self._paths.progress, Progress)
        steps = progress.step if progress else 0
        if self._stops:
            return AttemptResult(
                status="interrupted", started=self._started, ended=now, steps=steps
            )
        ended_by = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        failure = Failure(
            time=now,
            error=WorkerLostError.__name__,
            category=WorkerLostError.category,
            message=f"the driver {ended_by} without a result; its last output:\n{_tail(log)}",
            hint="Run again: training goes on from the last checkpoint.",
            exit_code=code if 0 < code < 128 else WorkerLostError.exit_code,
        )
        return AttemptResult(
            status="failed", started=self._started, ended=now, steps=steps, failure=failure
        )


def _end(driver: subprocess.Popen[bytes]) -> None:
    """Nothing outlives the process that started it: the driver leads a session of its own."""
    kill_session(driver.pid)
    driver.communicate()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(f"  {line}" for line in lines)
