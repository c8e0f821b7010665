"""Length buckets: every sample once, and neighbours of similar length."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from footplate.data.bucketing import BucketedOrder
from footplate.data.order import ShuffledOrder
from footplate.data.selection import Ids

_LENGTHS = st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=12).filter(any)
_BUCKETS = st.integers(1, 9)


def _bucketed(lengths: list[list[int]], bucket: int, *, shuffle: bool = True) -> BucketedOrder:
    return BucketedOrder(
        ShuffledOrder([len(group) for group in lengths], seed=4, pool=3, shuffle=shuffle),
        bucket=bucket,
        lengths_of=lambda group: np.array(lengths[group], dtype=np.int64),
    )


def _epoch(order: BucketedOrder, epoch: int = 0) -> Ids:
    return order.take(epoch, 0, order.rows).ids


@given(lengths=_LENGTHS, bucket=_BUCKETS, shuffle=st.booleans(), epoch=st.integers(0, 3))
def test_an_epoch_is_every_row_once(
    lengths: list[list[int]], bucket: int, shuffle: bool, epoch: int
) -> None:
    """Putting samples into runs loses none and repeats none."""
    found = _epoch(_bucketed(lengths, bucket, shuffle=shuffle), epoch)

    assert sorted(found.tolist()) == list(range(sum(map(len, lengths))))


@given(lengths=_LENGTHS, bucket=_BUCKETS, data=st.data())
def test_a_part_is_a_slice_of_the_whole(
    lengths: list[list[int]], bucket: int, data: st.DataObject
) -> None:
    """Any range of any epoch can be taken at any time, and is what stands there in the whole."""
    order = _bucketed(lengths, bucket)
    bounds = st.integers(0, order.rows)

    for _ in range(5):
        epoch = data.draw(st.integers(0, 2))
        start, stop = sorted(data.draw(st.tuples(bounds, bounds)))
        whole = _epoch(_bucketed(lengths, bucket), epoch)
        assert order.take(epoch, start, stop).ids.tolist() == whole[start:stop].tolist()


@given(lengths=_LENGTHS, bucket=_BUCKETS, epoch=st.integers(0, 3))
def test_runs_do_not_overlap_in_length(lengths: list[list[int]], bucket: int, epoch: int) -> None:
    """In a pool no sample of one run has a length between those of another one."""
    order = _bucketed(lengths, bucket)
    length_of = np.array([length for group in lengths for length in group])
    found = length_of[_epoch(order, epoch)]
    pools = ShuffledOrder([len(group) for group in lengths], seed=4, pool=3).pools(epoch)

    for start, stop in zip(pools.starts, pools.starts[1:], strict=False):
        pool = found[start:stop]
        runs = [pool[at : at + bucket].tolist() for at in range(0, len(pool), bucket)]
        runs.sort(key=lambda run: (min(run), max(run)))
        joined = [length for run in runs for length in (min(run), max(run))]
        assert joined == sorted(joined)


def test_padding_wastes_little() -> None:
    """Where lengths vary much, most of the padding goes away, and batches still come mixed."""
    random = np.random.default_rng(1)
    lengths = [random.integers(1, 1000, size=256).tolist() for _ in range(16)]
    shuffled = ShuffledOrder([256] * 16, seed=4, pool=8)
    order = BucketedOrder(shuffled, bucket=64, lengths_of=lambda group: np.array(lengths[group]))
    length_of = np.array(lengths).ravel()

    def waste(ids: Ids) -> float:
        batches = length_of[ids].reshape(-1, 64)
        return float(1 - batches.mean() / batches.max(axis=1).mean())

    assert waste(shuffled.take(0, 0, shuffled.rows).ids) > 0.4
    assert waste(_epoch(order)) < 0.05
    means = length_of[_epoch(order)].reshape(-1, 64).mean(axis=1)
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.3
    # Nor does a place in the batch, and so a rank, have the shorter ones.
    places = length_of[_epoch(order)].reshape(-1, 64).mean(axis=0)
    assert places.std() < 5


def test_no_length_is_always_last() -> None:
    """What does not fill a run, and is last in its pool, is of another length in each epoch."""
    order = _bucketed([list(range(50))], 8)

    last = [set(_epoch(order, epoch)[-2:].tolist()) for epoch in range(40)]

    assert all(max(pair) - min(pair) == 1 for pair in last)
    assert {min(pair) // 8 for pair in last} >= {0, 1, 2, 3, 4, 5}
    assert max(map(max, last)) == 49


def test_unshuffled_runs_go_by_length() -> None:
    """Without shuffling the runs of a pool come from short to long, each as it is stored."""
    order = _bucketed([[5, 1], [4], [2, 3], [9, 8]], 2, shuffle=False)

    assert _epoch(order).tolist() == [1, 3, 2, 4, 0, 5, 6]


def test_the_order_stays_for_ever() -> None:
    """A change of these numbers breaks every run that goes on from an earlier checkpoint."""
    order = _bucketed([[5, 1, 7], [4], [2, 3], [9, 8, 0, 6]], 2)

    assert [_epoch(order, epoch).tolist() for epoch in (0, 1)] == [
        [1, 0, 9, 2, 6, 7, 8, 5, 4, 3],
        [0, 2, 5, 4, 1, 6, 7, 3, 9, 8],
    ]
