"""
The training of one rank, which can be killed and begun again; started by training_group.

For every attempt it forks: Python and torch are loaded once only. It answers with the process id,
and when asked again, with how that process ended.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import nn

from footplate.checkpoints import read_manifest
from footplate.checkpoints.restore import CheckpointReader
from footplate.data.source import DataSource
from footplate.spec import Job
from footplate.store import CheckpointName, RunPaths, Store
from footplate.train import randomness
from footplate.train.context import Context
from footplate.train.group import RankGroup
from footplate.train.start import Start

RUN = RunPaths(namespace="local", name="toy", uid="uid")
_TIMEOUT = timedelta(seconds=60)


class Block(nn.Module):
    """A part that is repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input and something of its own."""
        return x + torch.relu(self.layers(x))


class Net(nn.Module):
    """
    Weights, statistics of batches, and random numbers of each rank.

    Args:
        ballast: How many numbers it has that count steps and are of no other use.
    """

    ballast: torch.Tensor

    def __init__(self, ballast: int) -> None:
        super().__init__()
        self.register_buffer("ballast", torch.zeros(ballast, dtype=torch.int32))
        self.first = nn.Linear(3, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.last = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One number for each sample."""
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.last(x)
        return result


def train(ctx: Context) -> None:
    """Train to the end."""
    net = Net(ctx.params.get("ballast", 1))
    model = ctx.prepare(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=ctx.total_steps)
    generator = torch.Generator().manual_seed(ctx.rank)
    ctx.track(model=model, optimizer=optimizer, scheduler=scheduler, generator=generator)
    for batch in ctx.batches("train"):
        noise = torch.rand(1, generator=generator)
        loss = (model(batch["x"]) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        net.ballast += 1
        ctx.step(loss=loss, drawn=torch.rand(()), ballast=net.ballast.sum())


def attempt(
    job: Job, store: Store, rank: int, world_size: int, meet: Path, number: int, resume: str | None
) -> None:
    """One attempt of this rank, which meets the others at a file."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{meet}",
        rank=rank,
        world_size=world_size,
        timeout=_TIMEOUT,
    )
    group = RankGroup(
        rank=rank,
        local_rank=rank,
        ranks_on_node=world_size,
        world_size=world_size,
        device=torch.device("cpu"),
    )
    source = DataSource(manifests=(str(job.data["train"].manifest),), seed=job.seed, shuffle=True)
    ctx = Context(
        job,
        group,
        {"train": source},
        store,
        RUN,
        attempt=number,
        start=_start(store, resume) if resume else None,
    )
    randomness.seed_everything(job.seed)
    try:
        train(ctx)
        ctx.finish()
    finally:
        ctx.close()


def _start(store: Store, resume: str) -> Start:
    name = CheckpointName.parse(resume)
    assert name is not None
    manifest = read_manifest(store, RUN, name)
    assert manifest is not None
    reader = CheckpointReader(store, RUN.checkpoint(name), manifest)
    return Start(manifest=manifest, reader=reader)


def main() -> None:
    """Fork, and tell how it ended, for each attempt."""
    torch.set_num_threads(1)
    rank, world_size = int(sys.argv[1]), int(sys.argv[2])
    described: dict[str, Any] = json.loads(sys.stdin.readline())
    job = Job.from_dict(described["spec"], folder=Path.cwd(), source="toy")
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                store = Store(described["store"], endpoint=described["endpoint"])
                number = order["attempt"]
                meet = Path(described["folder"]) / f"meet-{number}"
                attempt(job, store, rank, world_size, meet, number, order["resume"])
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        print(child, flush=True)
        sys.stdin.readline()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
