"""
A run that is killed again and again; started by test_kill.

For every line on standard input it forks a driver that claims the next attempt and writes
checkpoints as fast as it can, kills it at a random moment, and prints how many it had committed.
Python and torch are loaded once only.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time

import torch

from footplate.checkpoints import (
    CheckpointFile,
    CheckpointManifest,
    Retention,
    collect_orphans,
    find_resume_point,
)
from footplate.checkpoints.publish import commit
from footplate.checkpoints.snapshot import Snapshotter
from footplate.checkpoints.writing import write_snapshot
from footplate.spec import Keep
from footplate.store import Claim, RunPaths, Store, claim_next, read_claims
from rank_threads import RankThreads

RUN = RunPaths(namespace="local", name="digits", uid="uid-1")


def drive(uri: str, told: int) -> None:
    """Go on from what is there, for ever."""
    store = Store(uri)
    claims = read_claims(store, RUN)
    resume, _ = find_resume_point(store, RUN, claims)
    claim = Claim(
        attempt=len(claims) + 1,
        token=str(os.getpid()),
        host="",
        pid=os.getpid(),
        claimed=time.time(),
        starts_from=str(resume.name) if resume else None,
        spec={},
    )
    claim_next(store, RUN, claim)
    collect_orphans(store, RUN)
    ranks = RankThreads(2)
    snapshotters = [
        Snapshotter(ranks.gather_of(rank), rank=rank, world_size=2, device=torch.device("cpu"))
        for rank in range(2)
    ]
    for step in itertools.count(resume.step + 1 if resume else 1):
        manifest = CheckpointManifest(
            step=step,
            position=step * 64,
            epoch=0,
            attempt=claim.attempt,
            world_size=2,
            written=time.time(),
        )
        shared = {"model": {"step": step, "weight": torch.full((200_000,), float(step))}}

        def write(rank: int) -> tuple[CheckpointFile, ...]:
            own = {"step": step}  # noqa: B023 - it is done when run() returns
            snapshot = snapshotters[rank].take(shared, own, replicated=lambda _: True)  # noqa: B023
            return write_snapshot(store, RUN, manifest.name, snapshot)  # noqa: B023

        files = tuple(itertools.chain.from_iterable(ranks.run(write)))
        commit(store, RUN, manifest.with_files(files))
        os.write(told, b".")
        Retention(store, RUN, attempt=claim.attempt, keep=Keep(last=2)).prune()


def main() -> None:
    """Fork, kill and report, once a line."""
    torch.set_num_threads(1)
    uri, seed = sys.argv[1], int(sys.argv[2])
    generator = random.Random(seed)  # noqa: S311  # repeatable
    for _ in sys.stdin:
        read, told = os.pipe()
        driver = os.fork()
        if driver == 0:
            try:
                drive(uri, told)
            finally:
                os._exit(1)
        os.close(told)
        time.sleep(generator.uniform(0.02, 0.4))
        os.kill(driver, signal.SIGKILL)
        _, status = os.waitpid(driver, 0)
        with os.fdopen(read, "rb") as commits:
            count = len(commits.read())
        sys.stdout.write(f"{count if os.WIFSIGNALED(status) else 'failed'}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
