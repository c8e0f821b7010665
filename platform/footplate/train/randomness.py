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
        "cuda": _of_devices(),
    }


def restore(state: dict[str, Any]) -> None:
    """Go on exactly where the state was captured."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        for device, of_device in zip(_devices(), state["cuda"], strict=False):
            torch.cuda.set_rng_state(of_device, device)


def _of_devices() -> list[torch.Tensor]:
    """Of the GPUs that this process sees, its own first; none without any."""
    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_rng_state(device) for device in _devices()]


def _devices() -> list[int]:
    """After a restart a rank may be given another GPU: which is its own is what counts."""
    count, own = torch.cuda.device_count(), torch.cuda.current_device()
    return [(own + offset) % count for offset in range(count)]


@contextmanager
def forked() -> Iterator[None]:
    """What is drawn inside leaves the generators as they were."""
    state = capture()
    try:
        yield
    finally:
        restore(state)
