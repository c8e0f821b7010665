"""Starting the driver on this machine, following it, and learning how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import IO

from footplate.errors import StoreError, WorkerLostError
from footplate.processes import kill_session
from footplate.runs.environment import local_environment
from footplate.runs.observer import Observer
from footplate.runs.printed import PrintedLines
from footplate.spec import Job
from footplate.store import (
    AttemptPaths,
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

# What the driver leaves on another disk than the store's, which may be full or gone.
_CLAIMED = "attempt"
_RESULT = "result.json"
_POLL_S = 0.2
_POLL_BUCKET_S = 2.0
_TAIL_LINES = 15
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
        self._run = record.paths
        claimed = attempt_numbers(store, self._run)
        self._number = claimed[-1] + 1 if claimed else 1
        self._stops = 0
        self._noted = 0
        self._blind = False
        self._printed: PrintedLines | None = None
        self._progress: Progress | None = None
        self._started = time.time()

    @property
    def _paths(self) -> AttemptPaths:
        return self._run.attempt(self._number)

    def run(self) -> RunOutcome:
        """Start it and wait for its end; a first Ctrl-C lets it save, a second kills it."""
        if self._store.size(self._run.record) is None:
            self._store.create(self._run.record, to_json(self._record))
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(TemporaryDirectory(prefix="footplate-")))
            log = self._log_file()
            self._printed = PrintedLines(log)
            self._observer.started(self._run, self._number, log)
            output = stack.enter_context(log.open("ab"))
            driver = self._start(scratch, output)
            stack.callback(_end, driver)
            code = self._follow(driver, scratch)
            self.look(scratch)
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
        arguments = ["--job", str(job_file), "--out", str(scratch), "--local"]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "footplate.train", *arguments],
            stdin=subprocess.PIPE,  # closed by the system when this process dies
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process to handle
            pass_fds=(self._lock,),
            env=local_environment(self._job, os.environ, os.cpu_count() or 1),
        )

    def _follow(self, driver: subprocess.Popen[bytes], scratch: Path) -> int:
        while True:
            try:
                return self._watch(driver, scratch)
            except KeyboardInterrupt:
                self._stop(driver, scratch)

    def _watch(self, driver: subprocess.Popen[bytes], scratch: Path) -> int:
        poll_s = _POLL_S if self._store.folder is not None else _POLL_BUCKET_S
        while True:
            try:
                return driver.wait(poll_s)
            except subprocess.TimeoutExpired:
                self.look(scratch)

    def look(self, scratch: Path) -> None:
        """
        Hand on what the driver and the ranks have written since the last look.

        A store that does not answer is no reason to end what is trained meanwhile.
        """
        claimed = scratch / _CLAIMED
        if claimed.exists() and (number := claimed.read_text()):
            self._number = int(number)
        if self._printed is not None:
            for line in self._printed.new():
                self._observer.printed(line)
        try:
            self._hand_on()
        except StoreError as error:
            if not self._blind:
                self._observer.note(f"cannot see how far it is: {error.message}")
            self._blind = True
            return
        self._blind = False

    def _hand_on(self) -> None:
        notes = read_record_if_there(self._store, self._paths.notes, Notes) or Notes()
        for line in notes.lines[self._noted :]:
            self._observer.note(line)
        self._noted = len(notes.lines)
        self._progress = read_record_if_there(self._store, self._paths.progress, Progress)
        if self._progress is not None:
            self._observer.progress(self._progress)

    def _stop(self, driver: subprocess.Popen[bytes], scratch: Path) -> None:
        """Ctrl-C: let the ranks save and end; the second time, or before they train, end now."""
        self._stops += 1
        self.look(scratch)
        can_save = self._progress is not None and self._progress.stage in _CAN_SAVE
        if self._stops == 1 and can_save:
            try:
                self._store.put(self._paths.stop, b"{}")
            except StoreError as error:
                self._observer.note(
                    f"cannot ask for a checkpoint, so Ctrl-C again: {error.message}"
                )
                return
            self._observer.note("saving a checkpoint, then stopping; Ctrl-C again stops at once")
        else:
            kill_session(driver.pid)

    def _outcome(self, code: int, log: Path, copy: Path) -> RunOutcome:
        result = self._result(copy)
        if result is None:
            result = self._without_result(code, log)
            self._write_down(result)
        return RunOutcome(
            run=self._run,
            attempt=self._number,
            result=result,
            log=log,
            exit_code=result.exit_code,
        )

    def _write_down(self, result: AttemptResult) -> None:
        """Say in the driver's place how its attempt ended, if it had claimed one."""
        with suppress(StoreError):
            if self._store.size(self._paths.claim) is not None:
                self._store.put(self._paths.result, to_json(result))

    def _result(self, copy: Path) -> AttemptResult | None:
        if copy.exists():
            return AttemptResult.model_validate_json(copy.read_bytes())
        with suppress(StoreError):
            return read_record_if_there(self._store, self._paths.result, AttemptResult)
        return None

    def _without_result(self, code: int, log: Path) -> AttemptResult:
        """The driver died before it could say how it ended."""
        now = time.time()
        steps = self._progress.step if self._progress else 0
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
