"""Real ranks on the loopback interface, and runs in a store as a driver leaves them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from ray import cloudpickle

from footplate.checkpoints import CheckpointManifest, find_resume_point, read_manifest
from footplate.checkpoints.restore import CheckpointReader
from footplate.data import read_manifest as read_data_manifest
from footplate.data.create import create_manifest
from footplate.data.source import DataSource
from footplate.data.tables import fixed_binary_column
from footplate.spec import Job
from footplate.store import CheckpointName, Claim, RunPaths, Store, claim_next, read_claims
from footplate.tracking import read_points
from footplate.train import randomness
from footplate.train.context import Context
from footplate.train.group import RankGroup
from footplate.train.reliability import Reliability
from footplate.train.start import Start

T = TypeVar("T")

_PROCESS = Path(__file__).with_name("rank_process.py")
_ANSWER_S = 90


class Ranks:
    """Three processes of one gloo group."""

    world_size = 3

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(_PROCESS), str(rank), str(self.world_size), f"{folder}/meet"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            for rank in range(self.world_size)
        ]

    def run(self, function: Callable[[RankGroup], T]) -> list[T]:
        """What a function returns on each rank; it is called on all of them at once."""
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        content = cloudpickle.dumps(function)
        watchdog = threading.Timer(_ANSWER_S, self._kill)
        watchdog.start()
        try:
            answers = self._ask(content)
        finally:
            watchdog.cancel()
        for _, error in answers:
            if error is not None:
                raise error
        return [result for result, _ in answers]

    def close(self) -> None:
        """Let the processes end."""
        for process in self._processes:
            process.communicate(timeout=_ANSWER_S)

    def _ask(self, content: bytes) -> list[tuple[Any, Exception | None]]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(content)
            process.stdin.flush()
        answers = []
        for process in self._processes:
            assert process.stdout is not None
            answers.append(pickle.load(process.stdout))  # noqa: S301 - our own child's
        return answers

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Three ranks, which stay for all tests."""
    ranks = Ranks(tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


@pytest.fixture
def alone() -> RankGroup:
    """A group of one rank."""
    return _alone()


def _alone() -> RankGroup:
    return RankGroup(
        rank=0, local_rank=0, ranks_on_node=1, world_size=1, device=torch.device("cpu")
    )


class Place:
    """
    A run of one rank in a store, with data to train on and no driver.

    Args:
        folder: Of the data; and of the store, if none is given.
        changes: To its job.
    """

    def __init__(self, folder: Path, store: Store | None = None, **changes: Any) -> None:
        self.store = store or Store(str(folder / "runs"))
        self.folder = folder
        self._changes = changes
        self.run = RunPaths(namespace="local", name="toy", uid="uid")
        self._data = {
            name: _dataset(folder / name, name, rows)
            for name, rows in (("train", 22), ("valid", 13))
        }

    def job(self, **changes: Any) -> Job:
        """A small job, changed as :meth:`Job.replace` does."""
        values = {
            "name": "toy",
            "entrypoint": "toy:train",
            "seed": 3,
            "limits": {"epochs": 3},
            "data": {
                "train": {"manifest": self._data["train"], "batch_size": 4},
                "valid": {"manifest": self._data["valid"], "batch_size": 5, "shuffle": False},
            },
            "checkpoint": {"every": "4 steps"},
        }
        job = Job.from_dict(values, folder=self.folder, source="toy")
        changes = {**self._changes, **changes}
        return job.replace(**changes) if changes else job

    def damage(self, data: str, row_group: int) -> None:
        """Change a byte of a row group of five samples."""
        manifest, _ = read_data_manifest(self._data[data])
        file = self.folder / data / manifest.files[0].path
        content = bytearray(file.read_bytes())
        content[manifest.files[0].row_groups[row_group].offsets[0]] ^= 0xFF
        file.write_bytes(content)

    def claim(self, spec: dict[str, Any], start: CheckpointName | None = None) -> Claim:
        """
        Claim an attempt, as a driver does.

        Args:
            start: The checkpoint to go on from, if not the newest one.
        """
        claims = read_claims(self.store, self.run)
        resume, rejected = find_resume_point(self.store, self.run, claims)
        assert not rejected
        start = start or (resume.name if resume else None)
        claim = Claim(
            attempt=len(claims) + 1,
            token="token",  # noqa: S106 - tells claims apart, no secret
            host="here",
            pid=1,
            claimed=1000.0,
            starts_from=str(start) if start else None,
            spec=spec,
        )
        return claim_next(self.store, self.run, claim)

    def attempt(
        self, *, tracked: bool = True, reliability: Reliability | None = None, **changes: Any
    ) -> Context:
        """
        Claim an attempt from the newest checkpoint, as a driver does; what its rank gets.

        Args:
            tracked: Track something of no interest, as a run without any state is refused.
            reliability: What is known of the attempts before.
        """
        job = self.job(**changes)
        claim = self.claim(job.to_dict())
        resume = read_manifest(self.store, self.run, claim.start) if claim.start else None
        context = Context(
            job,
            _alone(),
            {
                data: DataSource(
                    manifests=(manifest,),
                    seed=job.seed,
                    shuffle=job.data[data].shuffle,
                    skip_rows=job.data[data].skip_rows,
                )
                for data, manifest in self._data.items()
            },
            self.store,
            self.run,
            attempt=claim.attempt,
            start=start_of(self.store, self.run, resume) if resume else None,
            reliability=reliability,
        )
        randomness.seed_everything(job.seed)
        if tracked:
            context.track(of_no_interest=torch.Generator())
        return context

    def metrics(self) -> dict[int, dict[str, float]]:
        """What the metric log holds, by step, but for how long things took."""
        by_step: dict[int, dict[str, float]] = {}
        for point in read_points(self.store, self.run):
            measured = {k: v for k, v in point.metrics.items() if not k.startswith("time/")}
            if measured:
                by_step.setdefault(point.step, {}).update(measured)
        return by_step


def start_of(store: Store, run: RunPaths, manifest: CheckpointManifest) -> Start:
    """A checkpoint of a run as an attempt begins with it."""
    reader = CheckpointReader(store, run.checkpoint(manifest.name), manifest)
    return Start(manifest=manifest, reader=reader)


def _dataset(folder: Path, name: str, rows: int) -> str:
    """A data set in row groups of five; its manifest."""
    folder.mkdir()
    values = np.random.default_rng(len(name)).normal(size=(rows, 3)).astype(np.float32)
    field, column = fixed_binary_column("x", values)
    schema = pa.schema([field, pa.field("number", pa.int64())])
    table = pa.Table.from_arrays([column, pa.array(np.arange(rows))], schema=schema)
    pq.write_table(table, folder / "part.parquet", row_group_size=5)
    return create_manifest(str(folder), name=name).uri


@pytest.fixture
def new_place(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Place]:
    """Makes runs that have not begun, all of the same data, and job if nothing else is asked."""

    def make(store: Store | None = None, **changes: Any) -> Place:
        return Place(tmp_path_factory.mktemp("place"), store, **changes)

    return make


@pytest.fixture
def place(new_place: Callable[..., Place]) -> Place:
    """A run that has not begun."""
    return new_place()
