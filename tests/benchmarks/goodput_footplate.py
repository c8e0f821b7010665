"""The arm of Footplate: the training function, and what starts the driver as a cluster would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from goodput_loop import StepLog, make_training, train_step

if TYPE_CHECKING:
    import footplate.train

_SAMPLES = 1_000_000
_RANKS = 2


def train(ctx: footplate.train.Context) -> None:
    """Train until the end of the benchmark."""
    module, batch = make_training()
    model = ctx.prepare(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5)
    ctx.track(model=model, optimizer=optimizer)
    log = StepLog(str(ctx.params["folder"]), ctx.rank)
    for _ in ctx.batches("train"):
        loss = train_step(model, optimizer, batch)
        ctx.step(loss=loss)
        log.done(ctx.step_number)


def main(folder: str, every: str) -> None:
    """Start Ray as the pods of a cluster do, and be the driver, for as long as this lives."""
    # Every step takes a batch, though this training looks at none.
    import pyarrow
    import pyarrow.parquet

    from footplate.data.create import create_manifest
    from footplate.store import RunRecord, to_json
    from footplate.train.environment import PRELOAD

    place = Path(folder)
    samples = place / "samples"
    samples.mkdir()
    table = pyarrow.table({"number": pyarrow.array(range(_SAMPLES), pyarrow.int32())})
    pyarrow.parquet.write_table(table, samples / "0.parquet", row_group_size=65_536)
    created = create_manifest(str(samples), name="numbers")
    spec = {
        "name": "goodput",
        "entrypoint": "goodput_footplate:train",
        "code": str(Path(__file__).parent),
        "workers": {"count": 1, "ranks": _RANKS, "cpus": "3"},
        "limits": {"max_steps": 1_000_000},
        "store": {"uri": str(place / "runs")},
        "checkpoint": {"every": every},
        "data": {"train": {"manifest": created.uri, "batch_size": 8}},
        "params": {"folder": folder},
    }
    record = RunRecord(
        uid="uid", namespace="team", name="goodput", created=time.time(), spec=spec, folder=folder
    )
    (place / "job.json").write_bytes(to_json(record))
    ray = str(Path(sys.executable).with_name("ray"))
    resources = json.dumps({"footplate_rank": _RANKS})
    # As the template has it for pods.
    os.environ[PRELOAD] = "footplate.train.preload"
    # Its dashboard and job server are not used.
    subprocess.run(
        [
            *(ray, "start", "--head", "--num-cpus=3", f"--resources={resources}"),
            *(f"--temp-dir={folder}/r", "--include-dashboard=false", "--port=0"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    os.execv(  # noqa: S606 - ourselves
        sys.executable,
        [sys.executable, "-m", "footplate.train", "--job", str(place / "job.json")],
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
