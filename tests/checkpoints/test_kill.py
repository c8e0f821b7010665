"""A process that writes checkpoints, killed at random moments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from footplate.checkpoints import collect_orphans, committed, find_resume_point, read_manifest
from footplate.checkpoints.restore import CheckpointReader
from footplate.store import RunPaths, Store, attempt_numbers, read_claims

WRITER = Path(__file__).with_name("writer.py")
RUN = RunPaths(namespace="local", name="digits", uid="uid-1")
KILLS = 20


def _verify_all(store: Store) -> None:
    """Every committed checkpoint is whole and holds the state of its step."""
    for name in committed(store, RUN):
        manifest = read_manifest(store, RUN, name)
        assert manifest is not None
        reader = CheckpointReader(store, RUN.checkpoint(name), manifest)
        model: Any = reader.load("model")
        assert model["step"] == name.step == manifest.step
        assert model["weight"].unique().tolist() == [name.step]
        assert [reader.own(rank) for rank in range(2)] == [{"step": name.step}] * 2


def test_after_a_kill_at_any_moment_every_committed_checkpoint_verifies(tmp_path: Path) -> None:
    """What was reported as committed is gone on from, and nothing that is not whole."""
    store = Store(str(tmp_path / "runs"))
    reached = 0
    with subprocess.Popen(
        [sys.executable, str(WRITER), store.uri, "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for _ in range(KILLS):
            print(file=writer.stdin, flush=True)
            reported = int(writer.stdout.readline())
            _verify_all(store)
            chosen, rejected = find_resume_point(store, RUN, read_claims(store, RUN))
            assert rejected == []
            step = chosen.step if chosen else 0
            # The last one may have been committed and not reported any more.
            assert step in (reached + reported, reached + reported + 1)
            reached = step
        writer.stdin.close()
    assert reached > KILLS
    assert len(attempt_numbers(store, RUN)) > KILLS // 2
    collect_orphans(store, RUN)
    kept = {str(name) for name in committed(store, RUN)}
    assert set(store.folders(RUN.checkpoints)) == kept
    found = Path(store.uri).rglob(f"{RUN.checkpoints}/**/*#*")
    assert list(found) == []
