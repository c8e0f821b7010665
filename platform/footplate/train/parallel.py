"""Averaging gradients over ranks, to the same bits before and after a restart."""

from __future__ import annotations

import torch
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

__all__ = ["distributed", "unwrapped"]


def distributed(model: Module, device: torch.device) -> Module:
    """
    The model wrapped in DDP.

    Args:
        model: On the device already; with a parameter that is trained.
    """
    on_gpu = device.type == "cuda"
    wrapped = DistributedDataParallel(model, device_ids=[device] if on_gpu else None)
    _settle_buckets(wrapped)
    return wrapped


def unwrapped(model: Module) -> Module:
    """The model inside DDP, or the model itself: names of its state don't depend on ranks."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def _settle_buckets(wrapped: DistributedDataParallel) -> None:
    """
    Let DDP arrange its buckets once and for all before the first step.

    DDP packs gradients into buckets, and packs them anew after its first backward pass, in the
    order in which gradients arrived. From three ranks on, the order in which a gradient is
    summed over ranks depends on where in its bucket it lies. So the first step after a restart
    would differ in its last bits from the same step of an uninterrupted run, which had been
    rearranged long before. A first pass over nothing but the parameters, with gradients of
    zero, makes the arrangement the same in every process's life. It starts from the last
    parameter, as real ones mostly do, so reduction still overlaps the backward pass.
    """
    model = wrapped.module
    wrapped.module = _Parameters([p for p in model.parameters() if p.requires_grad])
    try:
        wrapped().backward()
    finally:
        wrapped.module = model
    model.zero_grad(set_to_none=True)


class _Parameters(Module):
    """Stands in for a model, of which it touches no code: neither its forward nor its hooks."""

    def __init__(self, trained: list[torch.nn.Parameter]) -> None:
        super().__init__()
        self._trained = tuple(trained)  # a tuple, so that they are not this module's own

    def forward(self) -> torch.Tensor:
        """Zero, which depends on every parameter."""
        total = torch.zeros((), device=self._trained[0].device)
        for parameter in self._trained:
            nothing = (parameter * 0).sum()
            total = total + (nothing.real if nothing.is_complex() else nothing)
        return total
