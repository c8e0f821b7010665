"""
Order and schedule together: what ranks train on is the order, whatever interrupts them.

For any row groups, any kind of order, any numbers of ranks before and after, and any way to treat
an incomplete batch: the steps that remain take the samples that remain, in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Literal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.data.bucketing import BucketedOrder
from footplate.data.mixture import MixedOrder
from footplate.data.order import Order, ShuffledOrder, take_around
from footplate.data.packing import PackedOrder
from footplate.data.schedule import Schedule
from footplate.data.selection import Ids, Selection

_LASTS: st.SearchStrategy[Literal["drop", "pad", "keep"]] = st.sampled_from(["drop", "pad", "keep"])
# The length of each row of each row group.
_LENGTHS = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=8).filter(any)


@dataclass(frozen=True)
class _Set:
    """A data set, from which a new process makes its order."""

    parts: list[list[list[int]]]
    weights: list[float]
    seed: int
    shuffle: bool
    pool: int
    kind: str

    def order(self) -> Order:
        first_row, orders = 0, []
        for lengths in self.parts:
            orders.append(self._order_of(lengths, first_row))
            first_row += sum(map(len, lengths))
        return MixedOrder(orders, self.weights, seed=self.seed) if len(orders) > 1 else orders[0]

    def _order_of(self, lengths: list[list[int]], first_row: int) -> Order:
        def lengths_of(group: int) -> Ids:
            return np.array(lengths[group], dtype=np.int64)

        order = ShuffledOrder(
            [len(group) for group in lengths],
            seed=self.seed,
            shuffle=self.shuffle,
            pool=self.pool,
            first_row=first_row,
        )
        if self.kind == "packed":
            values = [sum(group) for group in lengths]
            return PackedOrder(order, length=4, group_values=values, lengths_of=lengths_of)
        if self.kind == "bucketed":
            return BucketedOrder(order, bucket=3, lengths_of=lengths_of)
        return order


@st.composite
def _sets(draw: st.DrawFn) -> _Set:
    kind = draw(st.sampled_from(["rows", "packed", "bucketed"]))
    has_samples = _LENGTHS
    if kind == "packed":
        has_samples = _LENGTHS.filter(lambda lengths: sum(map(sum, lengths)) >= 4)
    parts = draw(st.lists(has_samples, min_size=1, max_size=3))
    weights = draw(st.lists(st.floats(0.1, 10), min_size=len(parts), max_size=len(parts)))
    seed, shuffle, pool = draw(st.integers(0, 99)), draw(st.booleans()), draw(st.integers(1, 4))
    return _Set(parts, weights, seed, shuffle, pool, kind)


def _samples(selection: Selection) -> list[Any]:
    """Something that tells samples apart, for each."""
    if selection.offsets is None:
        rows: list[int] = selection.ids.tolist()
        return rows
    assert selection.begins is not None
    assert selection.ends is not None
    pieces = np.stack([selection.ids, selection.begins, selection.ends], axis=1).tolist()
    bounds = selection.offsets.tolist()
    return [pieces[first:last] for first, last in pairwise(bounds)]


def _trained(data: _Set, schedule: Schedule, position: int) -> dict[int, list[Any]]:
    """What all ranks together take from a position on, by epoch, each in a process of its own."""
    ranks = [data.order() for _ in range(schedule.present or schedule.world_size)]
    trained = {}
    for epoch, spans in groupby(schedule.spans(position=position), lambda span: span.epoch):
        trained[epoch] = [
            sample
            for span in spans
            for rank, order in enumerate(ranks)
            for sample in _samples(take_around(order, epoch, *span.share(rank)))
        ]
    return trained


@settings(deadline=None, max_examples=300)
@given(
    data=_sets(),
    last=_LASTS,
    batches=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    ranks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    draw=st.data(),
)
def test_the_rest_is_trained_on_exactly_once(
    data: _Set,
    last: Literal["drop", "pad", "keep"],
    batches: tuple[int, int],
    ranks: tuple[int, int],
    draw: st.DataObject,
) -> None:
    """
    After an interruption at any step the ranks take what remains, in the order of the epoch.

    Each sample once. At the end of an epoch "drop" leaves out less than a step; "pad" goes on
    with the start of the epoch to a whole step, "keep" to one sample for every rank.
    """
    order = data.order()
    before = Schedule(
        rows=order.rows, batch_size=batches[0], world_size=ranks[0], last=last, epochs=3
    )
    spans = list(before.spans())
    done = draw.draw(st.integers(0, len(spans)))
    position = spans[done - 1].position_after if done else 0
    after = replace(before, batch_size=batches[1], world_size=ranks[1])

    trained = _trained(data, after, position)

    for epoch in range(position // order.rows, 3):
        offset = max(position - epoch * order.rows, 0)
        whole = _samples(order.take(epoch, 0, order.rows))
        remaining, found = whole[offset:], trained.pop(epoch, [])
        count = len(remaining)
        if last == "drop":
            assert found == remaining[: count // after.global_batch * after.global_batch]
            continue
        short = -count % after.global_batch
        if last == "keep":
            short = max(ranks[1] - (after.global_batch - short), 0)
        assert found[:count] == remaining
        assert found[count:] == (whole * (short // len(whole) + 1))[:short]
    assert not trained


@settings(deadline=None, max_examples=100)
@given(
    data=_sets(),
    last=st.sampled_from(["drop", "pad"]),
    batch=st.integers(1, 5),
    full=st.integers(2, 4),
    draw=st.data(),
)
def test_fewer_ranks_train_on_what_all_would_have(
    data: _Set, last: Literal["drop", "pad"], batch: int, full: int, draw: st.DataObject
) -> None:
    """From any step on, with any number of ranks, the samples are those of the full number."""
    schedule = Schedule(
        rows=data.order().rows, batch_size=batch, world_size=full, last=last, epochs=2
    )
    spans = list(schedule.spans())
    done = draw.draw(st.integers(0, len(spans)))
    position = spans[done - 1].position_after if done else 0
    fewer = replace(schedule, present=draw.draw(st.integers(1, full)))

    assert _trained(data, fewer, position) == _trained(data, schedule, position)
