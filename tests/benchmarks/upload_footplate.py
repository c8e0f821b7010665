"""Uploads a checkpoint of one rank, digests made on the way, and says how long that took."""

from __future__ import annotations

import json
import os
import resource
import sys
import time

import torch

from footplate.checkpoints.snapshot import Snapshotter
from footplate.checkpoints.writing import write_snapshot
from footplate.store import CheckpointName, RunPaths, Store

_PIECES = 16


def main(endpoint: str, megabytes: int) -> None:
    """Print seconds and CPU seconds, as JSON."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    store = Store("s3://bucket/runs", endpoint=endpoint, region="us-east-1")
    run = RunPaths(namespace="local", name="upload", uid="uid")
    each = (megabytes << 20) // 4 // _PIECES
    state = {str(number): torch.zeros(each) for number in range(_PIECES)}
    snapshotter = Snapshotter(
        lambda value: [value], rank=0, world_size=1, device=torch.device("cpu")
    )
    small = snapshotter.take({"model": {"0": torch.zeros(1)}}, {})
    write_snapshot(store, run, CheckpointName(1, 1), small)
    snapshot = snapshotter.take({"model": state}, {})
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    write_snapshot(store, run, CheckpointName(2, 1), snapshot)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": took, "cpu_s": cpu}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
