"""
Which rank writes which part of the state.

What part of a tensor a rank holds is torch's to say, by the functions of its distributed
checkpoints. Every part is written once: what only one rank holds by that rank, the rest shared
out evenly by size, large tensors cut for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
from torch.distributed.checkpoint.planner import SavePlan

from footplate.errors import CheckpointError

__all__ = ["MAX_PIECE_BYTES", "Box", "Held", "cut", "held_boxes", "share_out"]

# Also what a reader takes at a time, and verifies: many pieces are read and checked at once.
MAX_PIECE_BYTES = 64 << 20
_MIN_PIECE_BYTES = 1 << 20
_PARTS_PER_RANK = 16  # no share is larger than the mean by more than that part of it


class Box(NamedTuple):
    """
    A part of a tensor.

    Attributes:
        tensor: Its name.
        dtype: Name of its type, as torch has it.
        shape: Of the whole tensor.
        offsets: Where in the tensor the box begins, in each dimension.
        sizes: Of the box.
    """

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return math.prod(self.sizes) * dtype.itemsize


class Held(NamedTuple):
    """The names in one rank's state, and what it could write of them."""

    names: tuple[str, ...]
    boxes: tuple[Box, ...]


def held_boxes(tensors: Mapping[str, Any]) -> tuple[Box, ...]:
    """The part of each tensor that is here: all of it, or the local shard."""
    plan: SavePlan = create_default_local_save_plan(dict(tensors), is_coordinator=False)
    boxes = []
    for item in plan.items:
        data = item.tensor_data
        assert data is not None
        dtype = str(data.properties.dtype).removeprefix("torch.")
        offsets, sizes = tuple(data.chunk.offsets), tuple(data.chunk.sizes)
        boxes.append(Box(item.index.fqn, dtype, tuple(data.size), offsets, sizes))
    return tuple(boxes)


def share_out(held: Sequence[Held]) -> list[list[Box]]:
    """
    What each rank is to write.

    Args:
        held: By each rank. What several hold must be the same on all of them.

    Raises:
        CheckpointError: If the ranks do not hold the same tensors, or not all of one.
    """
    holders: dict[Box, list[int]] = {}
    for rank, of_rank in enumerate(held):
        for box in of_rank.boxes:
            holders.setdefault(box, []).append(rank)
    _check_complete(held[0].names, list(holders))
    shared = sum(box.bytes for box, ranks in holders.items() if len(ranks) > 1)
    limit = _piece_bytes(shared, len(held))
    parts = [
        (part, ranks)
        for box, ranks in holders.items()
        if math.prod(box.sizes) or not math.prod(box.shape)
        for part in cut(box, limit if len(ranks) > 1 else MAX_PIECE_BYTES)
    ]
    return _balanced(parts, len(held))


def cut(box: Box, limit: int = MAX_PIECE_BYTES) -> list[Box]:
    """A box in parts of at most so many bytes, each of which is contiguous in it."""
    return _cut(box, limit, 0)


def _cut(box: Box, limit: int, dimension: int) -> list[Box]:
    if box.bytes <= limit or dimension == len(box.sizes):
        return [box]
    length = box.sizes[dimension]
    rows = max(limit // (box.bytes // length), 1)
    step = math.ceil(length / math.ceil(length / rows))
    parts = []
    for start in range(0, length, step):
        offsets, sizes = list(box.offsets), list(box.sizes)
        offsets[dimension] += start
        sizes[dimension] = min(step, length - start)
        part = box._replace(offsets=tuple(offsets), sizes=tuple(sizes))
        parts += _cut(part, limit, dimension + 1) if step == 1 else [part]
    return parts


def _piece_bytes(total: int, ranks: int) -> int:
    return min(max(total // (ranks * _PARTS_PER_RANK), _MIN_PIECE_BYTES), MAX_PIECE_BYTES)


def _balanced(parts: Sequence[tuple[Box, list[int]]], ranks: int) -> list[list[Box]]:
    """First what has no choice, then the largest, always to whoever has least so far."""
    loads = [0] * ranks
    chosen = [0] * len(parts)
    sizes = [box.bytes for box, _ in parts]
    for number in sorted(range(len(parts)), key=lambda i: (len(parts[i][1]) > 1, -sizes[i])):
        rank = min(parts[number][1], key=loads.__getitem__)
        loads[rank] += sizes[number]
        chosen[number] = rank
    plans: list[list[Box]] = [[] for _ in range(ranks)]
    for (box, _), rank in zip(parts, chosen, strict=True):
        plans[rank].append(box)
    return plans


def _check_complete(names: Sequence[str], boxes: Sequence[Box]) -> None:
    """Every tensor of rank 0's state is covered, and there is none that it does not know."""
    volumes = dict.fromkeys(names, 0)
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    for box in boxes:
        if box.tensor not in volumes:
            raise _disagreement(box.tensor, "is not in the state of rank 0")
        kind = (box.dtype, box.shape)
        if kinds.setdefault(box.tensor, kind) != kind:
            raise _disagreement(box.tensor, f"is {kinds[box.tensor]} on one rank, {kind} on other")
        volumes[box.tensor] += math.prod(box.sizes)
    for name, volume in volumes.items():
        if name not in kinds or volume != math.prod(kinds[name][1]):
            raise _disagreement(name, "is not held by the ranks as a whole, each part once")


def _disagreement(tensor: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"the ranks do not have the same state: {tensor} {what}",
        "Let every rank track the same objects, made by the same code.",
    )
