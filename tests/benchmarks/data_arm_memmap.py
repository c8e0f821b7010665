"""The ceiling: samples taken at random from a file that is mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from data_arm import BATCH, Streams, Task, main
from data_samples import Samples


def write(task: Task) -> None:
    """Nothing: the file with the tokens is all that it needs."""


def streams(task: Task) -> Streams:
    """Of each epoch."""
    tokens = Samples(Path(task.samples)).mapped()
    generator = np.random.default_rng(0)
    while True:
        yield _batches(tokens, generator.permutation(task.rows))


def _batches(tokens: np.ndarray, order: np.ndarray) -> Iterator[Tensor]:
    for start in range(0, len(order), BATCH):
        yield torch.from_numpy(np.take(tokens, order[start : start + BATCH], axis=0))


if __name__ == "__main__":
    main(write, streams)
