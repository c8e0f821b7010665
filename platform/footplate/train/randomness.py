"""The state of every random generator a training function may use."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["capture", "forked", "restore", "seed_everything"]


def seed_everything(*parts: int) -> None:
    """Seed Python, NumPy and torch (its devices included) from some integers."""
    seed = int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture() -> dict[str, Any]:
    """The state of all generators, to be given to :func:`restore`."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def restore(state: dict[str, Any]) -> None:
    """Go on exactly where the state was captured."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def forked() -> Iterator[None]:
    """What is drawn inside leaves the generators as they were."""
    state = capture()
    try:
        yield
    finally:
        restore(state)
