"""
The training that every arm of the goodput benchmark makes: the same model, steps and log.

It imports nothing of Footplate, so that the other arms do not pay for that.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import nn

__all__ = ["StepLog", "make_training", "train_step"]

_WIDTH = 1024
_LAYERS = 8  # 8.4 million parameters: 101 MB with AdamW's state
_BATCH = 32


class StepLog:
    """
    What a rank did and when, one line a step: its number, and the time when it was done.

    Args:
        folder: Of the benchmark; also told there is which process is to be killed.
        rank: Of this process; the log is rank 0's.
    """

    def __init__(self, folder: str, rank: int) -> None:
        (Path(folder) / f"rank-{rank}.pid").write_text(str(os.getpid()))
        self._file = (Path(folder) / "steps.log").open("a") if rank == 0 else None

    def done(self, step: int) -> None:
        """Log a step."""
        if self._file is not None:
            self._file.write(f"{step} {time.time():.4f}\n")
            self._file.flush()

    def saved(self, step: int, seconds: float) -> None:
        """Log for how long a save stopped training."""
        if self._file is not None:
            self._file.write(f"save {step} {seconds:.4f}\n")
            self._file.flush()


def make_training() -> tuple[nn.Module, torch.Tensor]:
    """The model, and the batch that it is trained on again and again."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [nn.Linear(_WIDTH, _WIDTH) for _ in range(_LAYERS)]
    return nn.Sequential(*layers), torch.randn(_BATCH, _WIDTH)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    """One optimizer step; its loss."""
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())
