"""Runs in a store as the driver leaves them, and real MLflow to publish them to."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from footplate.store import (
    AttemptResult,
    Claim,
    DataVersion,
    RunData,
    RunPaths,
    RunRecord,
    Store,
    claim_next,
    to_json,
)
from footplate.tracking import MetricLog, MetricPoint

SPEC: dict[str, Any] = {
    "name": "digits",
    "entrypoint": "digits:train",
    "seed": 7,
    "workers": {"count": 2, "ranks": 2, "cpus": "2"},
    "limits": {"epochs": 3},
    "data": {"train": {"manifest": "digits.json", "batch_size": 32}},
    "env": {"TOKEN": "hidden"},
    "params": {"lr": 0.1, "model": {"width": 64}, "name@host": "x"},
}


class Recorded:
    """A run in a store, written as the driver and rank 0 write it."""

    def __init__(self, root: Path, uid: str = "3f0c5d1e-uid", created: float = 1000.0) -> None:
        self.store = Store(str(root))
        self.run = RunPaths(namespace="local", name="digits", uid=uid)
        self.record = RunRecord(
            uid=uid,
            namespace="local",
            name="digits",
            created=created,
            spec=SPEC,
            code={"digest": "abc", "commit": "c0ffee", "dirty": True},
            versions={"torch": "2.8.0"},
        )
        self.store.put(self.run.record, to_json(self.record))
        train = DataVersion(manifest="/data/digits.json", version="feed", rows=1797)
        self.store.put(self.run.data, to_json(RunData(sets={"train": train})))

    def claim(self, attempt: int, starts_from: str | None = None, **changes: Any) -> Claim:
        """Begin an attempt; ``changes`` are to its spec."""
        claim = Claim(
            attempt=attempt,
            token=f"token-{attempt}",
            host="here",
            pid=1,
            claimed=1000.0 + attempt,
            starts_from=starts_from,
            spec=SPEC | changes,
        )
        return claim_next(self.store, self.run, claim)

    def log(self, attempt: int, steps: range, name: str = "loss") -> list[MetricPoint]:
        """Log a step's metric for each of ``steps``, as one segment."""
        points = [
            MetricPoint(step, 1_000_000 * attempt + step, {name: attempt + step / 7})
            for step in steps
        ]
        self.append(attempt, *points)
        return points

    def append(self, attempt: int, *points: MetricPoint) -> None:
        """Log points as one segment."""
        log = MetricLog(self.store, self.run.attempt(attempt))
        for point in points:
            log.append(point)
        log.flush()

    def end(self, attempt: int, **values: Any) -> None:
        """Write how an attempt ended."""
        result = AttemptResult(started=1000.0, ended=2000.0, **values)
        self.store.put(self.run.attempt(attempt).result, to_json(result))


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """A run of which one attempt has begun."""
    recorded = Recorded(tmp_path / "runs")
    recorded.claim(1)
    return recorded


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., Recorded]:
    """Makes further runs in the same store."""
    return lambda **values: Recorded(tmp_path / "runs", **values)


@pytest.fixture(scope="session")
def _empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mlflow.tracking import MlflowClient

    file = tmp_path_factory.mktemp("mlflow") / "empty.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def database(tmp_path: Path, _empty_database: Path) -> str:
    """The URI of an MLflow database of its own."""
    file = tmp_path / "mlflow.db"
    shutil.copy(_empty_database, file)
    return f"sqlite:///{file}"


class Server:
    """A real MLflow server on the loopback interface, stopped at first."""

    def __init__(self, folder: Path, database: Path) -> None:
        self._folder = folder
        shutil.copy(database, folder / "server.db")
        # Bound as long as this lives: else the port would be anybody's while no server listens.
        # Who sets that option too may bind it as well, as long as only one of them listens.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self._port = self._held.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        command += ["--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--backend-store-uri", f"sqlite:///{self._folder / 'server.db'}"]
        command += ["--artifacts-destination", str(self._folder / "artifacts")]
        log = self._folder / "server.log"
        quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | quiet,
                start_new_session=True,
            )
        give_up = time.monotonic() + 90
        while not self._answers():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        """End it and its children without a chance to say good-bye."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._held.close()

    def _answers(self) -> bool:
        health = f"{self.uri}/health"
        with (
            contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError),
            urllib.request.urlopen(health, timeout=5) as answer,  # noqa: S310  # loopback
        ):
            return bool(answer.status == 200)
        return False


@pytest.fixture
def server(tmp_path: Path, _empty_database: Path) -> Iterator[Server]:
    """A server that the test starts, and kills, itself."""
    server = Server(tmp_path, _empty_database)
    yield server
    server.close()
