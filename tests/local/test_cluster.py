"""The driver in a cluster: it goes on by itself where machines fail, and nowhere else."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun

import footplate
from footplate.checkpoints import committed, read_manifest
from footplate.processes import PURPOSE, RANK
from footplate.spec import RANK_RESOURCE
from footplate.store import (
    AttemptPaths,
    AttemptResult,
    CheckpointName,
    Notes,
    Progress,
    RunRecord,
    Store,
    read_claims,
    read_record_if_there,
    segments,
    to_json,
)
from footplate.tracking import read_points
from footplate.train.environment import PRELOAD
from footplate.train.own_checkpoints import newest_own_checkpoint
from rank_processes import command_line, is_rank
from sample_log import assert_exact, logged_samples

if TYPE_CHECKING:
    from tests.local.conftest import Place

pytestmark = pytest.mark.local

EPOCHS = 9
TIMEOUT_S = 150.0
_ONE_RANK = f"--resources={json.dumps({RANK_RESOURCE: 1})}"


class RayCluster:
    """
    A head without CPUs and worker nodes with two each, as processes of this machine.

    Args:
        folder: For Ray's sessions; with a short name, since sockets are in it.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "nodes.log"
        self._started = 0
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self._address = f"127.0.0.1:{port}"
        self._environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_urlsafe(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A killed node refuses to answer, so a second and a half say as much as fifteen.
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "3",
            # As the template has it for pods.
            PRELOAD: "footplate.train.preload",
        }
        head = ("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false")
        self._nodes = [self._start(*head, f"--temp-dir={folder}")]
        self.add_worker()
        self.add_worker()

    @property
    def environment(self) -> dict[str, str]:
        """What a driver finds in the head pod."""
        return {
            **self._environment,
            "RAY_ADDRESS": self._address,
            "RAY_CLUSTER_NAME": "loopback",
            "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "15",
        }

    def add_worker(self) -> None:
        """Start a worker node."""
        self._nodes.append(self._start(f"--address={self._address}", "--num-cpus=2", _ONE_RANK))

    def lose_worker(self) -> None:
        """SIGKILL the newest node with all that runs on it."""
        _kill(self._nodes.pop())

    def drain(self, node: int, seconds: int) -> None:
        """Give notice that a node goes away: 0 is the head, -1 the newest worker node."""
        subprocess.run(
            [
                str(Path(sys.executable).with_name("ray")),
                "drain-node",
                f"--address={self._address}",
                f"--node-id={self._name_of(node)}",
                "--reason=DRAIN_NODE_REASON_PREEMPTION",
                "--reason-message=Spot",
                f"--deadline-remaining-seconds={seconds}",
            ],
            env=self._environment,
            check=True,
            capture_output=True,
        )

    def _name_of(self, node: int) -> str:
        """The identity that Ray gave to a node."""
        raylets = [
            child
            for child in psutil.Process(self._nodes[node].pid).children(recursive=True)
            if child.name() == "raylet"
        ]
        arguments = command_line(raylets[0])
        found = re.search(r"--node_id=(\w+)|--node-id=(\w+)", arguments)
        assert found is not None, arguments
        return str(found[1] or found[2])

    def ranks(self) -> list[psutil.Process]:
        """The training processes."""
        return [child for child in self._children() if is_rank(child)]

    def _children(self) -> list[psutil.Process]:
        return [c for node in self._nodes for c in psutil.Process(node.pid).children(True)]

    def standing_by(self) -> list[psutil.Process]:
        """The processes that may be ranks one day, and have imported what that takes."""
        return [child for child in self._children() if _stands_by(child)]

    def close(self) -> None:
        """End all nodes."""
        while self._nodes:
            _kill(self._nodes.pop())

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            node = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("ray")),
                    "start",
                    "--block",
                    "--object-store-memory=100000000",
                    *arguments,
                ],
                env={**self._environment, "RAY_CLOUD_INSTANCE_ID": f"pod-{self._started}"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        # Those that start at the same time would choose the same names for their sockets.
        self._started += 1
        deadline = time.monotonic() + TIMEOUT_S
        while self._log.read_text().count("Ray runtime started.") < self._started:
            assert node.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)
        return node


def _nodes(processes: Sequence[psutil.Process]) -> int:
    """On how many nodes of Ray's they are: a process of Ray's is a child of its raylet."""
    return len({process.ppid() for process in processes})


def _stands_by(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        if process.environ().get(PURPOSE) == RANK and "IDLE" in command_line(process):
            return any("libtorch_cpu" in mapped.path for mapped in process.memory_maps())
    return False


def _kill(node: subprocess.Popen[bytes]) -> None:
    """SIGKILL a node, all of whose processes are its children."""
    for child in psutil.Process(node.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    node.kill()
    node.wait()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A cluster for all tests here."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        cluster = RayCluster(Path(folder))
        yield cluster
        cluster.close()


class Driver:
    """The process that KubeRay starts on the head, with a run in a store that all nodes see."""

    def __init__(self, cluster: RayCluster, place: Place, spec: str, *changes: str) -> None:
        job = footplate.load(place.folder / spec, changes)
        record = RunRecord(
            uid=f"uid-{job.name}",
            namespace="team",
            name=job.name,
            created=0,
            spec=job.to_dict(),
            folder=str(job.folder),
        )
        self.store, self.run = place.store, record.paths
        job_file = place.folder / f"{job.name}.json"
        job_file.write_bytes(to_json(record))
        self._output = place.folder / f"{job.name}.out"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "footplate.train", "--job", str(job_file)],
                env=cluster.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it and the ranks printed, as Ray's job log has it."""
        return self._output.read_text()

    def attempt(self, number: int) -> AttemptPaths:
        """Where an attempt stands."""
        return self.run.attempt(number)

    def progress(self, number: int) -> Progress | None:
        """How far an attempt is."""
        return read_record_if_there(self.store, self.attempt(number).progress, Progress)

    @property
    def attempts(self) -> int:
        """How many it has claimed so far."""
        return len(read_claims(self.store, self.run))

    @property
    def detail(self) -> str:
        """What the newest attempt says of what it does."""
        progress = self.progress(self.attempts)
        return progress.detail if progress else ""

    def is_training_as(self, detail: str) -> bool:
        """Whether the newest attempt has made a step, and says this of it."""
        progress = self.progress(self.attempts)
        return (
            progress is not None
            and progress.detail == detail
            and progress.step > progress.started_at_step
        )

    def notes(self, number: int) -> tuple[str, ...]:
        """What an attempt had to say."""
        notes = read_record_if_there(self.store, self.attempt(number).notes, Notes)
        return notes.lines if notes else ()

    def result(self, number: int) -> AttemptResult:
        """How an attempt ended."""
        result = read_record_if_there(self.store, self.attempt(number).result, AttemptResult)
        assert result is not None
        return result

    def has_ended(self, number: int) -> bool:
        """Whether it is written down how an attempt ended."""
        return self.store.size(self.attempt(number).result) is not None

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for something that it is going to do."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self._process.poll() is None, f"ended before {what}:\n{self.output}"
            assert time.monotonic() < deadline, f"in vain for {what}:\n{self.output}"
            time.sleep(0.02)

    def would_repeat(self, number: int) -> int:
        """How many steps of an attempt would be done again if it ended now; 0 before a save."""
        progress = self.progress(number)
        saved = CheckpointName.parse(progress.checkpoint or "") if progress else None
        return progress.step - saved.step if progress and saved else 0

    def started_from(self, number: int) -> int:
        """The step that an attempt went on from."""
        claim = read_claims(self.store, self.run)[number - 1]
        start = claim.start
        return start.step if start else 0

    def kill(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.wait()

    def finish(self) -> int:
        """Wait for its end; the exit code."""
        return self._process.wait(TIMEOUT_S)

    def losses(self) -> dict[int, float]:
        """Of every step."""
        points = read_points(self.store, self.run)
        return {p.step: p.metrics["loss"] for p in points if "loss" in p.metrics}

    def text(self, number: int) -> str:
        """The log of an attempt in the store."""
        return "".join(text for _, text in segments(self.store, self.run, number))


Start = Callable[..., Driver]


@pytest.fixture
def start(cluster: RayCluster) -> Iterator[Start]:
    """Starts drivers, none of which lives longer than the test."""
    drivers: list[Driver] = []

    def start(place: Place, spec: str, *changes: str) -> Driver:
        drivers.append(Driver(cluster, place, spec, *changes))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()


def test_goes_on_by_itself(start: Start, cluster: RayCluster, place: Place) -> None:
    """
    A killed rank costs some steps, nobody's help, and changes no loss.

    It is one process all the time, one MLflow run, and each attempt has its log in the store. After
    the kill the ranks are processes that stood by, and others take their places.
    The step that is done again gives the loss that it gave before the kill, bit for bit.
    """
    folder, manifest = place.recorder()
    driver = start(
        place, "job/samplelog.toml", f"data.train.manifest={manifest}", f"store.uri={place.runs}",
        f"params.log={folder / 'samples'}", "params.pause_s=0.15", f"limits.epochs={EPOCHS}",
        "checkpoint.every=20 steps",
    )  # fmt: skip
    driver.wait_for("some steps", lambda: driver.is_training_as(""))
    driver.wait_for("one that stands by on each node", lambda: _nodes(cluster.standing_by()) == 2)
    ready = {process.pid for process in cluster.standing_by()}
    # Long before the next one.
    driver.wait_for("a step after a checkpoint", lambda: 0 < driver.would_repeat(1) < 6)
    cluster.ranks()[1].kill()
    driver.wait_for("the attempt's end", lambda: driver.has_ended(1))
    repeated = driver.progress(1)
    assert repeated is not None
    driver.wait_for("the next one", lambda: driver.would_repeat(2) > 0)
    assert {process.pid for process in cluster.ranks()} <= ready
    assert driver.finish() == 0, driver.output

    assert driver.attempts == 2
    results = [driver.result(number) for number in range(1, driver.attempts + 1)]
    assert [result.goes_on for result in results] == [True] * (len(results) - 1) + [False]
    steps = results[-1].steps
    assert (results[-1].status, results[-1].epochs) == ("succeeded", EPOCHS)
    assert len({claim.pid for claim in read_claims(driver.store, driver.run)}) == 1
    _check_told(driver, steps)
    run = _mlflow_run(place, "samplelog")
    attempts = run.data.tags["footplate.attempts"]
    assert (run.info.status, attempts) == ("FINISHED", str(driver.attempts))
    assert driver.started_from(2) < repeated.step
    assert sorted(driver.losses()) == list(range(1, steps + 1))
    assert driver.losses()[repeated.step] == repeated.metrics["loss"]


def _check_told(driver: Driver, steps: int) -> None:
    """What happened can be read where people look, once."""
    notes = read_record_if_there(driver.store, driver.attempt(1).notes, Notes)
    assert notes is not None
    assert "goes on by itself: what happened is nobody's mistake" in notes.lines
    assert "vanished without an error of its own" in driver.text(1)
    assert f"footplate: succeeded after step {steps}" in driver.text(driver.attempts)
    output = _without_cleaners(driver.output)
    for number in range(1, driver.attempts + 1):
        assert _without_cleaners(driver.text(number)) in output


def _without_cleaners(text: str) -> str:
    """Without what Ray prints every second for want of a dashboard, also after the log's end."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("(PlacementGroupCleaner "))


def _mlflow(place: Place) -> MlflowClient:
    return MlflowClient(f"sqlite:///{place.folder}/.footplate/mlflow.db")


def _mlflow_run(place: Place, name: str) -> MlflowRun:
    """The one run of its experiment."""
    experiment = _mlflow(place).get_experiment_by_name(name)
    (run,) = _mlflow(place).search_runs([experiment.experiment_id])
    return run


_SCRIPT_EPOCHS = 12


def test_a_script_goes_on_after_the_loss_of_a_node(
    start: Start, cluster: RayCluster, place: Place
) -> None:
    """
    It ends with an error of its own, and is begun again, with what its trainer has saved.

    All of it is one run of MLflow, with what the driver and the script recorded.
    """
    driver = start(place, "rayjobs/own_trainer.toml", f"params.epochs={_SCRIPT_EPOCHS}")

    def saved() -> str | None:
        return newest_own_checkpoint(driver.store, driver.attempt(1))

    driver.wait_for("a checkpoint", lambda: saved() is not None)
    cluster.lose_worker()
    driver.wait_for("another attempt", lambda: driver.attempts == 2)
    cluster.add_worker()
    assert driver.finish() == 0, driver.output

    failure = driver.result(1).failure
    assert failure is not None
    assert failure.category == "process_killed_unknown"
    assert "python own_trainer.py ended with exit code 1 after 1 node was lost" in failure.message
    assert "attempt 2 of own-trainer uid-own-trainer goes on from" in driver.text(2)
    assert str(saved()) in driver.text(2)
    assert (driver.attempts, driver.result(2).status) == (2, "succeeded")
    run = _mlflow_run(place, "own-trainer")
    assert run.data.tags["footplate.job_uid"] == "uid-own-trainer"
    assert run.data.tags["mlflow.source.name"] == "python own_trainer.py"
    assert (run.info.status, run.data.params["epochs"]) == ("FINISHED", str(_SCRIPT_EPOCHS))
    history = _mlflow(place).get_metric_history(run.info.run_id, "loss")
    assert {point.step for point in history} == set(range(_SCRIPT_EPOCHS))


_UNSAVED = ("limits.max_steps=4000", "checkpoint.every=1h", "evaluate.every=4000 steps")


def _reasons(driver: Driver) -> list[str]:
    """What each checkpoint was made for."""
    names = committed(driver.store, driver.run)
    manifests = [read_manifest(driver.store, driver.run, name) for name in names]
    return [manifest.reason for manifest in manifests if manifest is not None]


@pytest.mark.chaos
def test_leaves_before_machines_are_taken_away(
    start: Start, cluster: RayCluster, place: Place
) -> None:
    """
    Told of it in time, it saves at once and once more before it leaves, and repeats nothing.

    The next attempt waits for other machines and goes on with the very next step.
    """
    driver = start(place, "rayjobs/textlm.toml", *place.tiny, *_UNSAVED)
    driver.wait_for("some steps", lambda: driver.is_training_as(""))
    began = time.time()
    cluster.drain(-1, 25)
    driver.wait_for("the attempt's end", lambda: driver.has_ended(1))
    assert time.time() - began < 25
    result = driver.result(1)
    assert result.failure is not None
    assert (result.failure.category, result.goes_on) == ("preemption", True)
    assert "left before machines were taken away" in result.failure.message
    assert _reasons(driver) == ["preemption"] * 2
    driver.wait_for("waiting", lambda: driver.detail == "1 of 2 workers are there")
    assert driver.started_from(2) == result.steps
    cluster.lose_worker()
    cluster.add_worker()
    driver.wait_for("going on", lambda: driver.would_repeat(2) > 0)


_ELASTIC = """
name = "elastic"
entrypoint = "recorder:train"
workers = {{ min = 2, max = 3, wait = "5s", grow_every = "10s" }}
limits.epochs = {epochs}
checkpoint.every = "10 steps"
store.uri = "{store}"

[data.train]
manifest = "{manifest}"
batch_size = 6
pool = 3
last = "pad"

[params]
log = "{log}"
lr = 1e-7
pause_s = 0.1
"""
_ELASTIC_EPOCHS = 14


def _elastic_spec(place: Place) -> str:
    """A job of two or three workers that writes down its samples."""
    folder, manifest = place.recorder()
    spec = _ELASTIC.format(
        epochs=_ELASTIC_EPOCHS,
        store=place.runs,
        manifest=manifest,
        log=folder / "samples",
    )
    (folder / "elastic.toml").write_text(spec)
    return "job/elastic.toml"


@pytest.fixture
def third_worker(cluster: RayCluster) -> Iterator[None]:
    """A worker node more than other tests have."""
    cluster.add_worker()
    yield
    cluster.lose_worker()


@pytest.mark.usefixtures("third_worker")
def test_goes_on_with_fewer_workers_and_grows_again(
    start: Start, cluster: RayCluster, place: Place
) -> None:
    """
    A lost node is not waited for, and one that comes is taken in, in the middle of training.

    Neither changes what is trained on, nor what comes of it: the samples of each step are those of
    three workers, and those that are done again by two have the loss that three had.
    """
    driver = start(place, _elastic_spec(place))
    driver.wait_for("a step after a checkpoint", lambda: driver.would_repeat(1) > 0)
    cluster.lose_worker()
    repeated = driver.progress(1)
    assert repeated is not None
    driver.wait_for("training with fewer", lambda: driver.is_training_as("2 of 3 workers"))
    shrunk = driver.attempts
    cluster.add_worker()
    driver.wait_for("room being taken", lambda: driver.has_ended(shrunk))
    assert driver.finish() == 0, driver.output

    assert (driver.result(shrunk).status, driver.result(shrunk).goes_on) == ("interrupted", True)
    assert driver.result(shrunk).failure is None
    # More if Ray still took the lost node for alive when the second one began.
    workers = [claim.workers for claim in read_claims(driver.store, driver.run)]
    assert (workers[0], workers[shrunk - 1 :]) == (3, [2, 3])
    assert "3 of 3 workers can be had: saves, and goes on with them" in driver.notes(shrunk)
    assert driver.result(shrunk).steps == driver.started_from(shrunk + 1)
    assert_exact(
        logged_samples(Store(f"{place.folder}/job/samples")), seed=0, epochs=_ELASTIC_EPOCHS
    )
    assert driver.started_from(2) < repeated.step
    assert driver.losses()[repeated.step] == pytest.approx(repeated.metrics["loss"], rel=1e-5)
