"""Training code that goes wrong in the way its parameter names."""

from __future__ import annotations

import os
import random
import signal

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from footplate.train import Context

AT_STEP = 12


def train(ctx: Context) -> None:
    """Train a linear classifier until the trouble."""
    model = ctx.prepare(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ctx.track(model=model, optimizer=optimizer)
    print("about to begin,", ctx.total_steps, "steps")
    for batch in ctx.batches("train"):
        loss = cross_entropy(model(batch["image"].flatten(1).float()), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if ctx.step_number + 1 == AT_STEP:
            loss = loss + trouble(ctx, loss)
        ctx.step(loss=loss, noise=random.random() + np.random.random())  # noqa: S311


def trouble(ctx: Context, loss: torch.Tensor) -> torch.Tensor:
    """Whatever is wanted, on rank 1 alone where it is one rank's."""
    kind = ctx.params.get("trouble")
    if kind == "blowup":
        return loss * float("nan")
    if kind == "raise" and ctx.rank == 1:
        raise ValueError("the moon is in the wrong house")
    if kind == "vanish" and ctx.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "leave":
        os._exit(0)
    return torch.zeros_like(loss)
