"""A process that removes checkpoints, killed at random moments."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from footplate.checkpoints import Retention, committed, counting
from footplate.checkpoints.manifest import COMMITTED, MANIFEST
from footplate.spec import Keep
from footplate.store import CheckpointName, Claim, RunPaths, Store, claim_next

REMOVER = Path(__file__).with_name("remover.py")
RUN = RunPaths(namespace="local", name="digits", uid="uid-1")
KILLS = 16
CHECKPOINTS = 8
FILES = [MANIFEST, COMMITTED, *(f"rank-{rank:05d}.bin" for rank in range(24))]


@contextmanager
def _remover(store: Store) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(REMOVER), store.uri]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _prune_and_kill(process: subprocess.Popen[str], after_s: float) -> bool:
    """Whether it was killed, and not done before."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(after_s, file=process.stdin, flush=True)
    said = process.stdout.readline().strip()
    assert said in {"killed", "0"}
    return said == "killed"


def _save(store: Store, steps: Sequence[int]) -> None:
    for step in steps:
        folder = Path(store.uri, RUN.checkpoint(CheckpointName(step, 1)))
        folder.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            (folder / file).write_bytes(b"{}")


def _files(store: Store, name: CheckpointName) -> set[str]:
    return {info.path.rpartition("/")[2] for info in store.stored(RUN.checkpoint(name))}


def test_after_a_kill_at_any_moment_what_counts_is_whole(tmp_path: Path) -> None:
    """A removal cut short leaves nothing that counts, and the next one finishes it."""
    store = Store(str(tmp_path / "runs"))
    claim = Claim(attempt=1, token="t", host="h", pid=1, claimed=1.0, spec={})  # noqa: S106
    claim_next(store, RUN, claim)
    generator = random.Random(0)  # noqa: S311  # repeatable
    killed = halves = 0
    with _remover(store) as process:
        for first in range(1, KILLS * CHECKPOINTS, CHECKPOINTS):
            steps = range(first, first + CHECKPOINTS)
            _save(store, steps)
            killed += _prune_and_kill(process, generator.uniform(0, 0.03))
            there = committed(store, RUN)
            assert [name.step for name in there[-2:]] == list(steps)[-2:]
            assert all(_files(store, name) == set(FILES) for name in there)
            halves += len(store.folders(RUN.checkpoints)) - len(there)
    assert killed > KILLS // 2
    assert halves
    newest = counting(store, RUN)[-2:]
    Retention(store, RUN, attempt=1, keep=Keep(last=2)).prune()
    assert store.folders(RUN.checkpoints) == [str(name) for name in newest]
