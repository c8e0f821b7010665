"""Real runs on this machine, started and killed as a user would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from footplate.checkpoints import committed, read_manifest, uncommitted
from footplate.runs import LOCAL_NAMESPACE, PastRun, newest_run
from footplate.store import CheckpointName, Progress, Store, read_record_if_there
from footplate.tracking import read_points
from rank_processes import is_rank
from sample_log import write_numbers

ROOT = Path(__file__).parents[2]
RECORDER = ROOT / "tests" / "sample_log"
COMMAND = Path(sys.executable).with_name("footplate")
TIMEOUT_S = 180.0

# A transformer small enough for a test; a step takes long enough to be killed in.
TINY = (
    "limits.max_steps=240",
    "checkpoint.every=20 steps",
    "evaluate.every=1 epoch",
    "params.width=96",
    "params.layers=3",
    "data.train.options.max_bytes=165120",  # 1,280 samples of 129 bytes: 80 steps an epoch
    "data.valid.options.max_bytes=16512",
)


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Wait for a condition, looking every few milliseconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.003)


def _session(leader: int) -> list[psutil.Process]:
    """The processes of a session that are not dead."""
    return [found for found in psutil.process_iter() if _is_in_session(found, leader)]


def _is_in_session(process: psutil.Process, leader: int) -> bool:
    try:
        return os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


class Running:
    """A `footplate run` that is under way."""

    def __init__(self, place: Place, arguments: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            [str(COMMAND), "run", *arguments],
            cwd=place.folder,
            env=place.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def driver(self) -> int:
        """Process id of the driver, which leads a session that all of the run is in."""
        (child,) = psutil.Process(self.process.pid).children()
        return child.pid

    def ranks(self) -> list[psutil.Process]:
        """The training processes."""
        return [found for found in _session(self.driver) if is_rank(found)]

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for something the run is going to do; it must not end before."""

        def met() -> bool:
            if condition():
                return True
            if self.process.poll() is not None:
                out, err = self.process.communicate()
                raise AssertionError(f"ended with {self.process.returncode}: {what}\n{out}\n{err}")
            return False

        wait_until(what, met)

    def wait_for_end(self, while_doing: Callable[[], None]) -> None:
        """Wait until the command has ended, doing something again and again meanwhile."""

        def ended() -> bool:
            while_doing()
            return self.process.poll() is not None

        wait_until("the end", ended)

    def kill(self) -> str:
        """SIGKILL the command alone, see that nothing of it lives on; what it had said."""
        driver = self.driver
        self.process.kill()
        _, errors = self.process.communicate()
        wait_until("nothing is left of the run", lambda: not _session(driver), timeout_s=30)
        return errors

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def finish(self, timeout_s: float = TIMEOUT_S) -> Finished:
        """Wait for the end."""
        out, err = self.process.communicate(timeout=timeout_s)
        return Finished(self.process.returncode, out, err)


class Finished:
    """A `footplate run` that has ended."""

    def __init__(self, exit_code: int, out: str, err: str) -> None:
        self.exit_code = exit_code
        self.out = out
        self.err = err

    @property
    def result(self) -> dict[str, Any]:
        """What `-o json` printed."""
        values: dict[str, Any] = json.loads(self.out)
        return values


class Place:
    """A copy of the recipes and the data, with a store of its own."""

    tiny = TINY

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("rayjobs", "datasets"):
            shutil.copytree(ROOT / name, folder / name)
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.runs = folder / ".footplate" / "runs"

    @property
    def store(self) -> Store:
        """Where the runs are."""
        return Store(str(self.runs))

    def footplate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Any other command."""
        return subprocess.run(
            [str(COMMAND), *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    def recorder(self) -> tuple[Path, str]:
        """
        Lay out, in the folder ``job``, a job that writes down its samples.

        Returns:
            The folder, and the manifest of its data.
        """
        folder = self.folder / "job"
        shutil.copytree(RECORDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
        numbers = folder / "numbers"
        numbers.mkdir()
        write_numbers(numbers)
        made = self.footplate("dataset", "create", str(numbers), "-o", "json")
        assert made.returncode == 0, made.stderr
        manifest: str = json.loads(made.stdout)["manifest"]
        return folder, manifest

    def start(
        self, spec: str, *changes: str, flags: tuple[str, ...] = (), output: str = "json"
    ) -> Running:
        """Start a run."""
        sets = [part for change in changes for part in ("--set", change)]
        return Running(self, (spec, *sets, *flags, "-o", output))

    def run(self, spec: str, *changes: str, flags: tuple[str, ...] = ()) -> Finished:
        """Run to the end."""
        return self.start(spec, *changes, flags=flags).finish()

    def newest(self, name: str) -> PastRun:
        """The newest run of a name."""
        return newest_run(self.store, LOCAL_NAMESPACE, name)

    def has_run(self, name: str) -> bool:
        """Whether there is a run of that name yet."""
        return bool(self.store.folders(f"{LOCAL_NAMESPACE}/{name}"))

    def progress(self, name: str, attempt: int) -> Progress | None:
        """How far an attempt of the newest run is."""
        if not self.has_run(name):
            return None
        paths = self.newest(name).paths.attempt(attempt)
        return read_record_if_there(self.store, paths.progress, Progress)

    def is_training(self, name: str, attempt: int, *, steps: int = 1) -> bool:
        """Whether an attempt has made so many steps of its own."""
        progress = self.progress(name, attempt)
        return progress is not None and progress.step >= progress.started_at_step + steps

    def checkpoints(self, name: str) -> list[int]:
        """Steps of the committed checkpoints."""
        if not self.has_run(name):
            return []
        return [found.step for found in committed(self.store, self.newest(name).paths)]

    def position(self, name: str) -> int:
        """Samples done with at the newest checkpoint."""
        run = self.newest(name).paths
        manifest = read_manifest(self.store, run, committed(self.store, run)[-1])
        assert manifest is not None
        return manifest.position

    def torn_checkpoints(self, name: str, *, attempt: int) -> list[CheckpointName]:
        """Checkpoints of an attempt with all data files of two ranks, and no marker."""
        store, run = self.store, self.newest(name).paths
        return [
            found
            for found in uncommitted(store, run)
            if found.attempt == attempt and self._has_data(run.checkpoint(found))
        ]

    def _has_data(self, folder: str) -> bool:
        written = {info.path.rpartition("/")[2] for info in self.store.objects(folder)}
        return written >= {"state.json", "rank-00000.json", "rank-00001.json"}

    def metrics(self, name: str) -> dict[int, dict[str, float]]:
        """All metrics of the newest run by step, but for how long things took."""
        by_step: dict[int, dict[str, float]] = {}
        for point in read_points(self.store, self.newest(name).paths):
            measured = {k: v for k, v in point.metrics.items() if not k.startswith("time/")}
            by_step.setdefault(point.step, {}).update(measured)
        return by_step


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty place to run in."""
    return Place(tmp_path)


@pytest.fixture
def other_place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Another empty place, for a run to compare with."""
    return Place(tmp_path_factory.mktemp("other"))
