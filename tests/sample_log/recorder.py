"""Training code that writes down which samples each step saw, on which rank."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import torch

from footplate.store import Store
from footplate.train import Context


def train(ctx: Context) -> None:
    """Train a model that does not matter; the log is written before the step counts."""
    log = Store(ctx.params["log"], endpoint=ctx.params.get("endpoint"), region="us-east-1")
    model = ctx.prepare(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=ctx.params.get("lr", 1e-9))
    ctx.track(model=model, optimizer=optimizer)
    for batch in ctx.batches("train"):
        numbers = batch["number"]
        loss = model(numbers.float()[:, None]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        entry = {
            "time": time.time(),
            "samples": numbers.tolist(),
            "pod": _pod(),
            "carriers": sorted(set(batch.get("carrier", ()))),
        }
        path = f"{ctx.step_number + 1:06}/{ctx.world_size}-{ctx.rank}.json"
        log.put(path, json.dumps(entry).encode())
        time.sleep(ctx.params.get("pause_s", 0.0))
        ctx.step(loss=loss)


def carried(columns: dict[str, Any]) -> dict[str, Any]:
    """Say of each sample in which pod a task has carried it."""
    return {**columns, "carrier": [_pod()] * len(columns["number"])}


def _pod() -> str:
    """As the operator calls it, where there is one."""
    return os.environ.get("RAY_CLOUD_INSTANCE_ID", "")
