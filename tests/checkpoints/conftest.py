"""A run that is claimed and checkpointed as the driver and its ranks do it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from checkpoint_files import dealt, make_files, manifest_of
from footplate.checkpoints import CheckpointManifest, counted, find_resume_point
from footplate.checkpoints.listing import committed
from footplate.checkpoints.publish import commit
from footplate.checkpoints.restore import CheckpointReader
from footplate.store import (
    CheckpointName,
    Claim,
    RunPaths,
    Store,
    claim_next,
    counted_until,
    read_claims,
)

_TIMEOUT_S = 240


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _check_ranks(script: Path, world_size: int, *arguments: str) -> None:
    """Run a script as so many ranks, each given its number first; all of them must succeed."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), *arguments],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        said = [rank.communicate(timeout=_TIMEOUT_S)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * world_size, "\n".join(said)


@pytest.fixture
def check_ranks() -> Callable[..., None]:
    """Runs a script as ranks."""
    return _check_ranks


class Line:
    """A run in a store, and its checkpoints."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.run = RunPaths(namespace="local", name="digits", uid="uid-1")

    def claim(self, attempt: int, starts_from: CheckpointName | None = None) -> None:
        """Begin an attempt."""
        claim = Claim(
            attempt=attempt,
            token=f"token-{attempt}",
            host="here",
            pid=1,
            claimed=1000.0 + attempt,
            starts_from=str(starts_from) if starts_from else None,
            spec={},
        )
        claim_next(self.store, self.run, claim)

    def write(self, step: int, attempt: int = 1) -> CheckpointManifest:
        """Write the data of a checkpoint of two ranks, uncommitted."""
        model = {"weight": torch.full((4, 4), float(step), dtype=torch.float64)}
        own = [{"random": [step, rank]} for rank in range(2)]
        files = make_files({"model": model, "step": {"step": step}}, own, cut=dealt(2))
        manifest = manifest_of(files, world_size=2, step=step, attempt=attempt)
        for name, content in files.items():
            self.store.put(f"{self.run.checkpoint(manifest.name)}/{name}", content)
        return manifest

    def save(self, step: int, attempt: int = 1) -> CheckpointName:
        """Write and commit a checkpoint."""
        manifest = self.write(step, attempt)
        commit(self.store, self.run, manifest)
        return manifest.name

    def folder(self, name: CheckpointName) -> Path:
        """Where a checkpoint's files stand."""
        assert self.store.folder is not None
        return self.store.folder / self.run.checkpoint(name)

    def resume(self) -> tuple[CheckpointName | None, list[str]]:
        """What a new attempt would go on from, and what it would pass over."""
        claims = read_claims(self.store, self.run)
        manifest, rejected = find_resume_point(self.store, self.run, claims)
        if manifest is not None:
            reader = CheckpointReader(self.store, self.run.checkpoint(manifest.name), manifest)
            assert reader.load("step") == {"step": manifest.step}
            assert reader.load("model")["weight"].unique().item() == manifest.step
            assert [reader.own(rank) for rank in (0, 1, 2)] == [
                *({"random": [manifest.step, rank]} for rank in (0, 1)),
                None,
            ]
            assert manifest.position == manifest.step * 64
        return (manifest.name if manifest else None), rejected

    def counting(self) -> list[CheckpointName]:
        """Committed checkpoints that count."""
        bounds = counted_until(read_claims(self.store, self.run))
        return counted(committed(self.store, self.run), bounds)


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """A run of which one attempt has begun."""
    line = Line(Store(str(tmp_path / "runs")))
    line.claim(1)
    return line
