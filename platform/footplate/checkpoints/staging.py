"""
Host memory that a rank's part of the state is copied to, arranged as its data file.

Fresh memory costs more than copying into it: the system clears every page at its first use. So
memory is kept from one copy to the next, and pinned where a GPU copies to it. (Large pages make
no copy faster; to find them may take the system seconds.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch.distributed.tensor import DTensor

from footplate.checkpoints.index import Piece
from footplate.checkpoints.planning import Box
from footplate.checkpoints.tree import PACKED
from footplate.errors import CheckpointError

__all__ = ["Source", "Stage"]

_ALIGNMENT = 64


class Source(NamedTuple):
    """
    A box to be copied.

    Attributes:
        held: The part of the tensor that is here, in which it lies.
    """

    box: Box
    held: Box


class _Slot(NamedTuple):
    """The place of a piece in memory, and which part of which tensor goes there."""

    tensor: str
    part: tuple[slice, ...] | None
    place: torch.Tensor


class Stage:
    """
    The memory of one rank.

    Args:
        device: Where the state is.
        segment_bytes: How much is asked for at once. Torch takes powers of two of pinned memory,
            so much of it is better asked for in several parts.

    Attributes:
        pieces: What is in it; their digests are not made.
        segments: The memory in use, one after the other.
    """

    def __init__(self, device: torch.device, *, segment_bytes: int = 512 << 20) -> None:
        self.pieces: tuple[Piece, ...] = ()
        self.segments: tuple[memoryview, ...] = ()
        self._device = device
        self._segment_bytes = segment_bytes
        self._memory: list[torch.Tensor] = []
        self._sources: Sequence[Source] = ()
        self._slots: list[_Slot] = []

    def arrange(self, sources: Sequence[Source]) -> None:
        """
        Make room for what :meth:`copy` copies; if that changes, what is there is lost.

        Raises:
            CheckpointError: If there is no memory for it.
        """
        if sources == self._sources:
            return
        self._sources = ()
        groups = list(_grouped(sources, self._segment_bytes))
        used = [self._reserved(number, end) for number, (_, end) in enumerate(groups)]
        del self._memory[len(groups) :]
        self._slots = [
            _slot(source, start, memory)
            for (placed, _), memory in zip(groups, used, strict=True)
            for source, start in placed
        ]
        self.pieces = tuple(_pieces(groups))
        self.segments = tuple(memory.numpy().data for memory in used)
        self._sources = sources

    def copy(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy what was arranged; when this returns it is done."""
        is_pinned = self._device.type == "cuda"
        with torch.no_grad():
            for tensor, part, place in self._slots:
                source = tensors[tensor]
                if isinstance(source, DTensor):
                    source = source.to_local()
                if part is not None:
                    source = source[part]
                if source.dtype is not place.dtype:  # of numbers smaller than a byte
                    source = source.view(place.dtype)
                place.copy_(source, non_blocking=is_pinned)
        if is_pinned:
            torch.cuda.current_stream(self._device).synchronize()

    def _reserved(self, number: int, size: int) -> torch.Tensor:
        """So many bytes of a segment, which is made anew if it is too small."""
        if number == len(self._memory):
            self._memory.append(self._allocated(size))
        elif len(self._memory[number]) < size:
            self._memory[number] = self._allocated(size)
        return self._memory[number][:size]

    def _allocated(self, size: int) -> torch.Tensor:
        try:
            pinned = self._device.type == "cuda"
            return torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        except RuntimeError as error:
            raise CheckpointError(
                f"no memory for a copy of the state: {size} bytes ({error})",
                "Saving takes as much memory of the host as a rank has of the state.",
            ) from error


_Group = tuple[list[tuple[Source, int]], int]


def _grouped(sources: Sequence[Source], limit: int) -> Iterator[_Group]:
    """For each segment, what goes there and where; and its size."""
    placed: list[tuple[Source, int]] = []
    end = 0
    for source in sources:
        size = -(-source.box.bytes // _ALIGNMENT) * _ALIGNMENT
        if placed and end + size > limit:
            yield placed, end
            placed, end = [], 0
        placed.append((source, end))
        end += size
    if placed:
        yield placed, end


def _pieces(groups: Sequence[_Group]) -> Iterator[Piece]:
    begin = 0
    for placed, end in groups:
        for source, start in placed:
            box = source.box
            yield Piece(*box, start=begin + start, bytes=box.bytes, xxh3="")
        begin += end


def _slot(source: Source, start: int, memory: torch.Tensor) -> _Slot:
    box, held = source
    end = start + box.bytes
    memory[end : end + -end % _ALIGNMENT].zero_()
    dtype: torch.dtype = getattr(torch, box.dtype)
    place = memory[start:end].view(torch.uint8 if dtype in PACKED else dtype).view(box.sizes)
    if box == held:
        return _Slot(box.tensor, None, place)
    inner = zip(box.offsets, held.offsets, box.sizes, strict=True)
    part = tuple(slice(offset - begin, offset - begin + size) for offset, begin, size in inner)
    return _Slot(box.tensor, part, place)
