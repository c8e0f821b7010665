"""A store with runs and real checkpoints."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_files import dealt, make_files, manifest_of
from footplate.checkpoints.index import data_file
from footplate.checkpoints.integrity import checksum
from footplate.checkpoints.manifest import COMMITTED, MANIFEST
from footplate.store import (
    AttemptResult,
    CheckpointName,
    Claim,
    Progress,
    RunPaths,
    RunRecord,
    Store,
    claim_next,
    to_json,
)
from s3_server import S3Server


class StoredRunMaker:
    """A run in a store, written down as the driver and its ranks do it."""

    def __init__(self, store: Store, run: RunPaths, *, created: float, **spec: Any) -> None:
        self.store = store
        self.run = run
        self.spec = {"name": run.name, **spec}
        record = RunRecord(
            uid=run.uid, namespace=run.namespace, name=run.name, created=created, spec=self.spec
        )
        store.put(run.record, to_json(record))

    def claim(self, attempt: int = 1, *, starts_from: CheckpointName | None = None) -> None:
        """Begin an attempt, of a cluster if the namespace is one's."""
        claim = Claim(
            attempt=attempt,
            token=f"token-{attempt}",
            host=os.uname().nodename,
            pid=1,
            claimed=time.time() - 3600,
            starts_from=str(starts_from) if starts_from else None,
            cluster=None if self.run.namespace == "local" else "raycluster-1",
            spec=self.spec,
        )
        claim_next(self.store, self.run, claim)

    def end(self, status: str, attempt: int = 1, *, goes_on: bool = False) -> None:
        """Write down how an attempt ended."""
        values = {"status": status, "started": 1.0, "ended": time.time() - 60, "goes_on": goes_on}
        result = AttemptResult.model_validate(values)
        self.store.put(self.run.attempt(attempt).result, to_json(result))

    def report(self, age_s: float, attempt: int = 1) -> None:
        """Be heard of."""
        progress = Progress(stage="training", time=time.time() - age_s, step=7)
        self.store.put(self.run.attempt(attempt).progress, to_json(progress))

    def save(
        self,
        step: int,
        attempt: int = 1,
        *,
        committed: bool = True,
        metrics: dict[str, float] | None = None,
    ) -> CheckpointName:
        """Write a checkpoint of two ranks: a model, of which each has half, and an optimizer."""
        weight = torch.full((4, 3), float(step))
        shared = {"model": {"weight": weight}, "optimizer": {"state": {"exp_avg": weight}}}
        files = make_files(shared, [{}, {}], cut=dealt(2))
        manifest = manifest_of(files, world_size=2, step=step, attempt=attempt).model_copy(
            update={
                "written": time.time() - 30,
                "metrics": metrics or {},
                "tracked": tuple(shared),
            }
        )
        folder = self.run.checkpoint(manifest.name)
        for file, content in files.items():
            self.store.put(f"{folder}/{file}", content)
        if committed:
            content = manifest.to_json()
            self.store.put(f"{folder}/{MANIFEST}", content)
            self.store.put(f"{folder}/{COMMITTED}", checksum(content).encode())
        return manifest.name

    def flip(self, name: CheckpointName) -> None:
        """Change a byte of what rank 1 has written."""
        path = f"{self.run.checkpoint(name)}/{data_file(1)}"
        content = bytearray(self.store.get(path))
        content[5] ^= 1
        self.store.put(path, bytes(content))


class StoreMaker:
    """A store and how runs are put into it."""

    def __init__(self, uri: str, *, endpoint: str | None = None) -> None:
        self.store = Store(uri, endpoint=endpoint)
        self.uri = uri
        self.options = ["--store", uri, *(["--endpoint", endpoint] if endpoint else [])]

    def run(
        self,
        name: str = "digits",
        *,
        uid: str = "uid-1",
        namespace: str = "local",
        age_s: float = 7200.0,
        **spec: Any,
    ) -> StoredRunMaker:
        """Put a run into it."""
        run = RunPaths(namespace=namespace, name=name, uid=uid)
        return StoredRunMaker(self.store, run, created=time.time() - age_s, **spec)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreMaker:
    """The store that commands look into if none is named, and no cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no such kubeconfig"))
    return StoreMaker(str(tmp_path / ".footplate" / "runs"))


@pytest.fixture
def in_bucket(here: StoreMaker, s3: S3Server, bucket: str) -> StoreMaker:
    """A store in a bucket of a real S3 server; for tests with the marker ``cluster``."""
    return StoreMaker(f"{bucket}/runs", endpoint=s3.endpoint)
