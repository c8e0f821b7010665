"""From the arrays of a batch to tensors on the device of a rank."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from footplate.data.columns import Columns
from footplate.train.prefetch import ahead

__all__ = ["Batch", "host_batches", "on_device"]

Batch = dict[str, Any]
"""Column names to tensors; texts and other objects as lists."""

S = TypeVar("S")  # a step


def host_batches(
    stream: Iterator[tuple[S, Columns]], device: torch.device
) -> Iterator[tuple[S, Batch]]:
    """
    The batches of a stream as tensors in memory of the host.

    For a GPU they are made ahead, in pinned memory: only from there does a copy to the GPU not
    wait for what it is doing.
    """
    if device.type == "cuda":
        return ahead(stream, partial(_tensors, pinned=True))
    return ((step, _tensors(columns, pinned=False)) for step, columns in stream)


def on_device(batch: Batch, device: torch.device) -> Batch:
    """A batch of the host on a device; the copy of a pinned one goes on in the background."""
    return {
        name: values.to(device, non_blocking=values.is_pinned())
        if isinstance(values, torch.Tensor)
        else values
        for name, values in batch.items()
    }


def _tensors(columns: Columns, *, pinned: bool) -> Batch:
    return {
        name: _tensor(values, pinned) if isinstance(values, np.ndarray) else values
        for name, values in columns.items()
    }


def _tensor(values: np.ndarray[Any, Any], pinned: bool) -> torch.Tensor:
    # What can't be written to is memory that Ray owns; a batch is the user's to change.
    tensor = torch.from_numpy(values if values.flags.writeable else values.copy())
    return tensor.pin_memory() if pinned else tensor
