"""The order of samples: complete, reproducible for ever, well mixed and cheap to read."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.data.order import ShuffledOrder, take_around
from footplate.data.selection import Ids

# Up to several pools of row groups, empty and single-row ones among them.
_GROUPS = st.lists(st.integers(0, 12), min_size=1, max_size=30).filter(any)
_SEEDS = st.integers(0, 2**63 - 1)
_EPOCHS = st.integers(0, 10**6)
_POOLS = st.integers(1, 10)


def _epoch(order: ShuffledOrder, epoch: int = 0) -> Ids:
    return order.take(epoch, 0, order.rows).ids


@given(groups=_GROUPS, seed=_SEEDS, epoch=_EPOCHS, pool=_POOLS, first=st.integers(0, 10**12))
def test_an_epoch_is_every_row_once(
    groups: list[int], seed: int, epoch: int, pool: int, first: int
) -> None:
    """Whatever the row groups, an epoch is a permutation of all rows."""
    order = ShuffledOrder(groups, seed=seed, pool=pool, first_row=first)

    assert order.rows == sum(groups)
    assert sorted(_epoch(order, epoch).tolist()) == list(range(first, first + sum(groups)))


@given(groups=_GROUPS, seed=_SEEDS, pool=_POOLS, shuffle=st.booleans(), data=st.data())
def test_a_part_is_a_slice_of_the_whole(
    groups: list[int], seed: int, pool: int, shuffle: bool, data: st.DataObject
) -> None:
    """Any range of any epoch can be taken at any time, and is what stands there in the whole."""
    order = ShuffledOrder(groups, seed=seed, pool=pool, shuffle=shuffle)
    bounds = st.integers(0, order.rows)

    for _ in range(5):
        epoch = data.draw(st.integers(0, 3))
        start, stop = sorted(data.draw(st.tuples(bounds, bounds)))
        whole = _epoch(ShuffledOrder(groups, seed=seed, pool=pool, shuffle=shuffle), epoch)
        assert order.take(epoch, start, stop).ids.tolist() == whole[start:stop].tolist()


@given(groups=_GROUPS, start=st.integers(0, 100), length=st.integers(0, 100))
def test_past_the_end_the_epoch_begins_again(groups: list[int], start: int, length: int) -> None:
    """What fills a step up is the start of the same epoch's order, as often as it takes."""
    order = ShuffledOrder(groups, seed=3)

    found = take_around(order, 5, start, start + length).ids.tolist()

    assert found == [_epoch(order, 5)[place % order.rows] for place in range(start, start + length)]


@given(groups=_GROUPS, seed=_SEEDS, epoch=_EPOCHS, pool=_POOLS)
def test_unshuffled_is_as_stored(groups: list[int], seed: int, epoch: int, pool: int) -> None:
    """Without shuffling every epoch is the order of the manifest, whatever the seed."""
    order = ShuffledOrder(groups, seed=seed, shuffle=False, pool=pool)

    assert _epoch(order, epoch).tolist() == list(range(sum(groups)))


@settings(max_examples=30)
@given(groups=st.lists(st.integers(10, 50), min_size=1, max_size=20), seed=_SEEDS, epoch=_EPOCHS)
def test_epochs_seeds_and_parts_differ(groups: list[int], seed: int, epoch: int) -> None:
    """No epoch repeats another one, of this seed or the next; nor do the parts of a mixture."""
    orders = {
        (s, e, first): tuple(_epoch(ShuffledOrder(groups, seed=s, first_row=first), e) - first)
        for s in (seed, seed + 1)
        for e in (epoch, epoch + 1)
        for first in (0, sum(groups))
    }

    assert len(set(orders.values())) == 8
    assert orders[seed, epoch, 0] == tuple(_epoch(ShuffledOrder(groups, seed=seed), epoch))
    assert tuple(range(sum(groups))) not in orders.values()


def test_the_order_stays_for_ever() -> None:
    """
    The order of a small example is these numbers.

    A change here breaks every run that goes on from a checkpoint of an earlier version: it would
    see some samples twice and others never. Do not update the numbers.
    """
    order = ShuffledOrder([3, 1, 4, 1, 5, 2, 2, 3, 1, 2], seed=7)

    assert [_epoch(order, epoch).tolist() for epoch in (0, 1)] == [
        [11, 9, 18, 12, 10, 8, 20, 2, 1, 13, 19, 21, 0, 6, 14, 15, 4, 16, 22, 3, 23, 17, 7, 5],
        [6, 5, 7, 17, 15, 4, 16, 3, 21, 14, 8, 2, 18, 20, 10, 11, 12, 22, 19, 1, 0, 9, 13, 23],
    ]


def test_the_order_is_the_same_in_another_process() -> None:
    """Nothing of the process enters: no hash seed, no random state, no earlier use."""
    code = (
        "from footplate.data.order import ShuffledOrder\n"
        "print(ShuffledOrder([40, 40, 40], seed=3).take(5, 10, 90).ids.tolist())"
    )
    np.random.seed(1)
    expected = ShuffledOrder([40, 40, 40], seed=3).take(5, 10, 90).ids.tolist()

    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "99"},
        capture_output=True,
        check=True,
        text=True,
    )

    assert found.stdout.strip() == str(expected)


@settings(max_examples=30)
@given(
    groups=st.lists(st.integers(1, 20), min_size=1, max_size=60),
    seed=_SEEDS,
    pool=_POOLS,
    batch=st.integers(1, 40),
)
def test_few_row_groups_are_open_at_a_time(
    groups: list[int], seed: int, pool: int, batch: int
) -> None:
    """From its first sample to its last a row group shares the reader with its pool alone."""
    order = ShuffledOrder(groups, seed=seed, pool=pool)
    group_of = np.repeat(np.arange(len(groups)), groups)
    starts = range(0, order.rows, batch)
    parts = [order.take(0, at, min(at + batch, order.rows)).ids for at in starts]
    seen = group_of[np.concatenate(parts)]

    for group in range(len(groups)):
        places = np.flatnonzero(seen == group)
        assert len(set(seen[places.min() : places.max() + 1].tolist())) <= pool


@pytest.mark.parametrize("epoch", range(5))
def test_a_pool_is_a_sample_of_the_whole(epoch: int) -> None:
    """Were the data sorted, every pool would still have something of each quarter of it."""
    pools = ShuffledOrder([10] * 64, seed=2, pool=8).pools(epoch)

    quarters = [set((pools[index] // 16).tolist()) for index in range(8)]

    assert quarters == [{0, 1, 2, 3}] * 8


def test_pools_are_equal() -> None:
    """No epoch ends with a pool of a row group or two, in which little would be shuffled."""
    pools = ShuffledOrder([10] * 17, seed=2, pool=8).pools(0)

    assert np.diff(pools.bounds).tolist() == [6, 6, 5]


def test_samples_move_as_far_as_in_a_full_shuffle() -> None:
    """Every epoch is within 5 % of the mean distance that a permutation of all samples moves."""
    order = ShuffledOrder([128] * 256, seed=11)

    for epoch in range(10):
        moved = np.abs(_epoch(order, epoch) - np.arange(order.rows)).mean()
        assert moved == pytest.approx(order.rows / 3, rel=0.05)


def test_neighbours_are_torn_apart() -> None:
    """
    Rows that follow each other in the data seldom do in the order.

    Next to each other in either direction are at most 1.2 times as many of them as in a random
    permutation of a pool, which leaves two of its rows so with a chance of two by its size.
    """
    order = ShuffledOrder([256] * 256, seed=11)
    pairs_in_pool, rows_of_pool = 8 * 255, 8 * 256

    adjacent = [np.count_nonzero(np.abs(np.diff(_epoch(order, epoch))) == 1) for epoch in range(10)]

    assert np.mean(adjacent) <= 1.2 * 32 * pairs_in_pool * 2 / rows_of_pool
