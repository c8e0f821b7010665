"""
Training one model on many ranks, to the same bits before and after a restart.

Either each rank has all of it and gradients are averaged (DDP), or each has a share of every
parameter (FSDP).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed
import xxhash
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from footplate.errors import UserCodeError
from footplate.train.group import RankGroup

__all__ = ["averaging", "blocks", "distributed", "sharded", "unwrapped"]

# A layer without parts is gathered on its own from so many parameters on.
_LARGE_LAYER = 16 * 2**20


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


def sharded(model: Module, group: RankGroup) -> Module:
    """
    The model with its parameters shared out over the ranks (FSDP2).

    The parameters of a block are together while it computes, those of one block after the other.
    The model itself is changed: its parameters are DTensors from now on.

    Args:
        model: Best on the CPU still: a block at a time comes to the device.

    Raises:
        UserCodeError: If the ranks have made different models.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    _check_equal(model, group)
    mesh = init_device_mesh(group.device.type, (group.world_size,))
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to(group.device)  # what is not shared out: buffers
    if any(True for _ in model.buffers()):
        model.register_forward_pre_hook(_take_over_buffers)
    return model


def _check_equal(model: Module, group: RankGroup) -> None:
    """Each rank keeps a share of what it has made: of different models that would be a mixture."""
    if len(set(group.gather(_digests(model)))) > 1:
        raise UserCodeError(
            f"the ranks have made different {type(model).__name__}s, of which each would keep a "
            "part",
            "Make the model from the job's seed, which Python, NumPy and torch begin with, or "
            "load the same weights on every rank.",
        )


def _digests(model: Module) -> str:
    hasher = xxhash.xxh3_64()
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            hasher.update(raw.numpy().data)
    return hasher.hexdigest()


def blocks(model: Module) -> Iterator[Module]:
    """
    The parts that are gathered one after the other: the repeated ones, like a transformer's.

    Those are children of a ``ModuleList``, ``ModuleDict`` or ``Sequential`` that has several of a
    kind, the outermost ones. All else belongs to the model as a whole.
    """
    for child in model.children():
        if not isinstance(model, (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)):
            yield from blocks(child)
            continue
        kinds = Counter(type(each) for each in model.children())
        if kinds[type(child)] > 1 and _is_worth_it(child):
            yield child
        else:
            yield from blocks(child)


def _is_worth_it(part: Module) -> bool:
    if isinstance(part, (torch.nn.ModuleList, torch.nn.ModuleDict)):
        return False  # never called itself, so nobody would gather it
    size = sum(parameter.numel() for parameter in part.parameters())
    return size >= _LARGE_LAYER or (size > 0 and any(True for _ in part.children()))


def _take_over_buffers(model: Module, _: object) -> None:
    """
    Give all ranks the buffers of rank 0, as DDP does before each forward pass.

    Statistics of batches would otherwise drift apart, and after a restart begin from those of
    rank 0, which are the ones that are saved.
    """
    pending = [
        torch.distributed.broadcast(buffer, src=0, async_op=True) for buffer in model.buffers()
    ]
    for work in pending:
        if work is not None:
            work.wait()


def unwrapped(model: Any) -> Any:
    """
    The model inside DDP and ``torch.compile``, or the model itself; anything else as it is.

    So the names of its state depend neither on how many ranks there are nor on whether it is
    compiled.
    """
    *_, innermost = _layers(model)
    return innermost


def averaging(model: Any) -> DistributedDataParallel | None:
    """The DDP that averages the gradients of a model, if there is one around it."""
    found = (each for each in _layers(model) if isinstance(each, DistributedDataParallel))
    return next(found, None)


def _layers(model: Any) -> Iterator[Any]:
    """A model, and what is inside it, if it is but a wrapper."""
    yield model
    if isinstance(model, DistributedDataParallel):
        yield from _layers(model.module)
    # Not imported for this alone: that takes a second.
    elif type(model).__name__ == "OptimizedModule" and "_orig_mod" in model._modules:
        yield from _layers(model._modules["_orig_mod"])


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
    model, broadcasts = wrapped.module, wrapped.broadcast_buffers
    wrapped.module = _Parameters([p for p in model.parameters() if p.requires_grad])
    wrapped.broadcast_buffers = False  # what stands in has none, at which DDP would fail
    try:
        wrapped().backward()
    finally:
        wrapped.module, wrapped.broadcast_buffers = model, broadcasts
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
