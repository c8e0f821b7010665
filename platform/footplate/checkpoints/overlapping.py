"""
Tensors of a program that have memory in common, as tied weights have.

A checkpoint may have been written when they were apart: then each has numbers of its own there,
and they fit into one memory only if they are the same. Two threads that fill it at once would
find out nothing, and each would see what the other has written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch.distributed.tensor import DTensor

from footplate.errors import CheckpointError

__all__ = ["Aside", "local_part"]


class Aside:
    """
    Sees to it that what is read into tensors with memory in common is the same.

    Args:
        tensors: What state is to be read into, by name.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._groups = list(_overlapping(tensors))
        self._buffers = {
            name: torch.empty_like(tensors[name])
            for group in self._groups
            for name in self._apart(group)
        }

    @property
    def targets(self) -> dict[str, torch.Tensor]:
        """What to read into instead, without memory in common."""
        return {**self._tensors, **self._buffers}

    def settle(self) -> None:
        """
        Bring what was read to where it belongs.

        Raises:
            CheckpointError: If there are different numbers for one memory.
        """
        for group in self._groups:
            apart = self._apart(group)
            if len(apart) == len(group):
                for name in apart:
                    self._tensors[name].copy_(self._buffers[name])
            for name in apart:
                if not _is_same(self._tensors[name], self._buffers[name]):
                    other = next(each for each in group if each != name)
                    raise CheckpointError(
                        f"{other} and {name} are one tensor in the code, two in the checkpoint",
                        "Their numbers differ there. Start over with --fresh, or untie them.",
                    )

    def _apart(self, group: Sequence[str]) -> Sequence[str]:
        """Those that need a buffer: all but one, if all are the very same memory."""
        views = {_view(local_part(self._tensors[name])) for name in group}
        return group[1:] if len(views) == 1 else group


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What of a tensor is in this process."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _overlapping(tensors: Mapping[str, torch.Tensor]) -> Iterable[Sequence[str]]:
    """The names of those that may have memory in common, together; single ones are left out."""
    spans = sorted(
        (str(local.device), local.data_ptr(), _end(local), name)
        for name, tensor in tensors.items()
        if (local := local_part(tensor)).numel()
    )
    group: list[str] = []
    where, until = "", 0
    for device, start, end, name in spans:
        if device != where or start >= until:
            if len(group) > 1:
                yield group
            group, where, until = [], device, 0
        group.append(name)
        until = max(until, end)
    if len(group) > 1:
        yield group


def _end(tensor: torch.Tensor) -> int:
    """Where the memory of a tensor ends."""
    dimensions = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in dimensions)
    return tensor.data_ptr() + (last + 1) * tensor.itemsize


def _view(tensor: torch.Tensor) -> tuple[object, ...]:
    return (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj())


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit by bit, so that NaN is the same as NaN."""
    return torch.equal(_bits(local_part(one)), _bits(local_part(other)))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)
