"""Who writes what: everything once, and evenly."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.checkpoints.planning import (
    MAX_PIECE_BYTES,
    Box,
    Held,
    cut,
    held_boxes,
    share_out,
)
from footplate.errors import CheckpointError

_SHAPES = st.lists(st.integers(0, 7), max_size=4).map(tuple)


def _whole(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Box:
    return Box(name, dtype, shape, (0,) * len(shape), shape)


def _elements(box: Box) -> list[tuple[int, ...]]:
    spans = zip(box.offsets, box.sizes, strict=True)
    return list(itertools.product(*(range(start, start + size) for start, size in spans)))


def _sharded(name: str, shape: tuple[int, ...], dimension: int, ranks: int) -> list[Box]:
    """What each rank holds of a tensor that is sharded as torch does it."""
    parts = torch.arange(shape[dimension]).chunk(ranks) if shape[dimension] else ()
    boxes, start = [], 0
    for rank in range(ranks):
        size = len(parts[rank]) if rank < len(parts) else 0
        offsets, sizes = [0] * len(shape), list(shape)
        offsets[dimension], sizes[dimension] = start, size
        boxes.append(Box(name, "float32", shape, tuple(offsets), tuple(sizes)))
        start += size
    return boxes


@st.composite
def _states(draw: st.DrawFn) -> list[Held]:
    """What some ranks hold: tensors that only rank 0 counts for, replicas, shards, both."""
    shards, replicas = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    ranks = shards * replicas
    shapes = draw(st.lists(_SHAPES, max_size=6))
    held: list[list[Box]] = [[] for _ in range(ranks)]
    for number, shape in enumerate(shapes):
        name = f"model/{number}"
        kind = draw(st.sampled_from(["first", "replicated", "sharded"] if shape else ["first"]))
        if kind == "sharded":
            parts = _sharded(name, shape, draw(st.integers(0, len(shape) - 1)), shards)
            for rank in range(ranks):
                held[rank].append(parts[rank % shards])
        else:
            for rank in range(1 if kind == "first" else ranks):
                held[rank].append(_whole(name, shape))
    names = tuple(f"model/{number}" for number in range(len(shapes)))
    return [Held(names if rank == 0 else (), tuple(boxes)) for rank, boxes in enumerate(held)]


@settings(max_examples=300, deadline=None)
@given(held=_states())
def test_every_element_is_written_once_by_a_rank_that_has_it(held: list[Held]) -> None:
    """However many ranks there are, and whatever each of them holds."""
    plans = share_out(held)
    shapes = {box.tensor: box.shape for of_rank in held for box in of_rank.boxes}
    for rank, plan in enumerate(plans):
        for part in plan:
            own = [box for box in held[rank].boxes if box.tensor == part.tensor]
            assert any(set(_elements(part)) <= set(_elements(box)) for box in own)
            assert math.prod(part.sizes) or not math.prod(part.shape)
    for name, shape in shapes.items():
        parts = [part for plan in plans for part in plan if part.tensor == name]
        assert parts, "what is empty is not forgotten"
        written = Counter(element for part in parts for element in _elements(part))
        assert set(written.values()) <= {1}
        assert len(written) == math.prod(shape)


@settings(max_examples=200, deadline=None)
@given(shape=st.lists(st.integers(1, 9), max_size=4).map(tuple), limit=st.integers(4, 300))
def test_parts_are_small_and_contiguous(shape: tuple[int, ...], limit: int) -> None:
    """A part is at most as large as was asked for, and one stretch of the memory of the whole."""
    box = _whole("x", shape)
    tensor = torch.arange(math.prod(shape)).reshape(shape)
    parts = cut(box, limit)
    seen = []
    for part in parts:
        assert part.bytes <= limit
        slices = tuple(slice(o, o + s) for o, s in zip(part.offsets, part.sizes, strict=True))
        assert tensor[slices].is_contiguous()
        seen += tensor[slices].flatten().tolist()
    assert seen == list(range(math.prod(shape)))


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 1 << 22), min_size=1, max_size=40),
    ranks=st.integers(1, 8),
)
def test_replicas_are_shared_evenly(sizes: list[int], ranks: int) -> None:
    """No rank writes more than the mean and one piece."""
    boxes = tuple(_whole(f"x{number}", (size,)) for number, size in enumerate(sizes))
    names = tuple(box.tensor for box in boxes)
    plans = share_out([Held(names, boxes)] * ranks)
    loads = [sum(part.bytes for part in plan) for plan in plans]
    total = sum(loads)
    assert total == 4 * sum(sizes)
    assert max(loads) <= total / ranks + max(total / ranks / 16, 1 << 20)


def test_a_large_tensor_is_shared() -> None:
    """One tensor alone keeps all ranks busy, in pieces that a reader can take."""
    box = _whole("embedding", (50_000, 4096), "bfloat16")
    plans = share_out([Held(("embedding",), (box,))] * 4)
    loads = [sum(part.bytes for part in plan) for plan in plans]
    assert max(loads) <= 1.1 * min(loads)
    assert all(part.bytes <= MAX_PIECE_BYTES for plan in plans for part in plan)


def test_what_one_rank_alone_holds_is_weighed_first() -> None:
    """A rank that has much of its own is given less of what all have."""
    mine = _whole("buffers", (3 << 20,))
    ours = tuple(_whole(f"x{number}", (1 << 20,)) for number in range(5))
    names = ("buffers", *(box.tensor for box in ours))
    plans = share_out([Held(names, (mine, *ours)), Held((), ours)])
    assert [sum(part.bytes for part in plan) >> 22 for plan in plans] == [4, 4]
    assert mine in plans[0]


def test_plans_do_not_depend_on_who_makes_them() -> None:
    """Each rank makes the plan for itself, from the same."""
    boxes = tuple(_whole(f"x{number}", (number + 1, 1000)) for number in range(50))
    held = [Held(tuple(box.tensor for box in boxes), boxes)] * 3
    assert share_out(held) == share_out(list(held))


@pytest.mark.parametrize(
    ("held", "what"),
    [
        ([Held(("a",), ())], "a is not held by the ranks as a whole"),
        ([Held((), (_whole("a", (2,)),))], "a is not in the state of rank 0"),
        (
            [Held(("a",), (_whole("a", (2,)),)), Held((), (_whole("a", (3,)),))],
            r"a is \('float32', \(2,\)\) on one rank",
        ),
        (
            [Held(("a",), (_whole("a", (2,)),)), Held((), (_whole("a", (2,), "float64"),))],
            "float64",
        ),
        (
            [Held(("a",), (_whole("a", (2,)), Box("a", "float32", (2,), (0,), (1,))))],
            "each part once",
        ),
    ],
    ids=["nobody", "unknown", "shape", "type", "overlap"],
)
def test_ranks_that_disagree_are_told(held: list[Held], what: str) -> None:
    """A checkpoint that no one could read back is not written."""
    with pytest.raises(CheckpointError, match=what):
        share_out(held)


def test_tensors_that_are_whole_are_held_whole() -> None:
    """Of whatever type and shape, also without elements or dimensions."""
    tensors: dict[str, Any] = {
        "a": torch.zeros(3, 4, dtype=torch.bfloat16),
        "b": torch.tensor(1.0, dtype=torch.float64),
        "c": torch.zeros(0, 5, dtype=torch.bool),
    }
    assert held_boxes(tensors) == (
        Box("a", "bfloat16", (3, 4), (0, 0), (3, 4)),
        Box("b", "float64", (), (), ()),
        Box("c", "bool", (0, 5), (0, 0), (0, 5)),
    )
    assert [box.bytes for box in held_boxes(tensors)] == [24, 8, 0]
