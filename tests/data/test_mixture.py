"""Mixtures: the weights are kept, each part in its own order, and a place is found directly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.data.mixture import MixedOrder
from footplate.data.order import ShuffledOrder
from footplate.data.packing import PackedOrder
from footplate.data.selection import Ids

_ROWS = st.lists(st.integers(1, 400), min_size=1, max_size=4)
_WEIGHTS = st.floats(1e-4, 1e4)


def _parts(rows: list[int]) -> list[ShuffledOrder]:
    """Data sets of so many rows, numbered one after the other."""
    firsts = np.cumsum([0, *rows]).tolist()
    return [
        ShuffledOrder([(count + 1) // 2, count // 2], seed=6, first_row=first)
        for count, first in zip(rows, firsts, strict=False)
    ]


@st.composite
def _mixtures(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    rows = draw(_ROWS)
    return rows, draw(st.lists(_WEIGHTS, min_size=len(rows), max_size=len(rows)))


def _line(order: MixedOrder, epochs: int) -> list[int]:
    return [row for epoch in range(epochs) for row in order.take(epoch, 0, order.rows).ids.tolist()]


@settings(deadline=None)
@given(mixture=_mixtures(), data=st.data())
def test_a_part_is_a_slice_of_the_whole(
    mixture: tuple[list[int], list[float]], data: st.DataObject
) -> None:
    """Any range of any epoch can be taken at any time, and is what stands there in the whole."""
    rows, weights = mixture
    order = MixedOrder(_parts(rows), weights, seed=6)
    bounds = st.integers(0, order.rows)

    for _ in range(5):
        epoch = data.draw(st.integers(0, 5))
        start, stop = sorted(data.draw(st.tuples(bounds, bounds)))
        whole = MixedOrder(_parts(rows), weights, seed=6).take(epoch, 0, order.rows)
        assert order.take(epoch, start, stop).ids.tolist() == whole.ids[start:stop].tolist()


@settings(deadline=None)
@given(mixture=_mixtures())
def test_each_part_goes_through_its_epochs(mixture: tuple[list[int], list[float]]) -> None:
    """What comes of a part, other parts left out, is its own epochs one after the other."""
    rows, weights = mixture
    parts = _parts(rows)
    line = np.array(_line(MixedOrder(parts, weights, seed=6), 3))
    bounds = np.cumsum([0, *rows])

    for number, part in enumerate(parts):
        found = line[(line >= bounds[number]) & (line < bounds[number + 1])]
        for epoch, start in enumerate(range(0, len(found), part.rows)):
            expected = part.take(epoch, 0, part.rows).ids
            assert (
                found[start : start + part.rows].tolist() == expected[: len(found) - start].tolist()
            )


@settings(deadline=None)
@given(weights=st.lists(_WEIGHTS, min_size=1, max_size=4), far=st.integers(0, 10**9))
def test_weights_are_kept(weights: list[float], far: int) -> None:
    """From the beginning on each part has its share, and in any epoch, but for a few samples."""
    order = MixedOrder(_parts([1024] * len(weights)), weights, seed=6)
    share = np.array(weights) / sum(weights) * order.rows

    def counts(line: list[int]) -> Ids:
        return np.bincount(np.array(line) // 1024, minlength=len(weights))

    for epochs in (1, 2, 3):
        assert np.abs(counts(_line(order, epochs)) - epochs * share).max() <= len(weights)
    in_far_epoch = counts(order.take(far, 0, order.rows).ids.tolist())
    assert np.abs(in_far_epoch - share).max() <= 2 * len(weights)


def test_written_weights_are_exact() -> None:
    """One tenth and nine tenths are that for ever, though no float is a tenth."""
    order = MixedOrder(_parts([1, 10 * 1024 - 1]), [0.1, 0.9], seed=6)

    for epoch in (0, 1, 10**9):
        found = order.take(epoch, 0, order.rows).ids
        assert np.count_nonzero(found == 0) == 1024


def test_parts_are_spread() -> None:
    """The samples of a part come all over a block, not side by side."""
    found = MixedOrder(_parts([2000, 2000]), [1, 1], seed=6).take(0, 0, 4000).ids < 2000

    windows = found[:3968].reshape(-1, 64).mean(axis=1)

    assert windows.min() > 0.2
    assert windows.max() < 0.8


def test_sequences_can_be_mixed() -> None:
    """Packed parts stay packed, with every piece in its sequence."""
    parts = [
        PackedOrder(
            ShuffledOrder([4], seed=1, first_row=first),
            length=5,
            group_values=[16],
            lengths_of=lambda group: np.array([3, 5, 7, 1]),
        )
        for first in (0, 4)
    ]
    order = MixedOrder(parts, [1, 2], seed=6)

    found = order.take(0, 0, order.rows)

    assert order.rows == 6
    assert found.offsets is not None
    assert found.begins is not None
    assert found.ends is not None
    values = found.ends - found.begins
    for number in range(6):
        pieces = slice(found.offsets[number], found.offsets[number + 1])
        assert values[pieces].sum() == 5
        assert len(set((found.ids[pieces] // 4).tolist())) == 1


def test_nothing_can_be_taken() -> None:
    """An empty range is no samples, at a block's beginning too."""
    assert len(MixedOrder(_parts([1024, 1024]), [1, 1], seed=6).take(1, 1024, 1024)) == 0


@pytest.mark.parametrize("weights", [[1.0, 3.0], [2.0, 6.0], [0.25, 0.75]])
def test_only_the_ratio_of_weights_counts(weights: list[float]) -> None:
    """The order stays, and it is these numbers for ever: runs go on from earlier checkpoints."""
    order = MixedOrder(_parts([7, 5]), weights, seed=6)

    assert _line(order, 2) == [
        11,
        7,
        8,
        9,
        10,
        8,
        10,
        11,
        5,
        3,
        7,
        1,
        2,
        9,
        0,
        11,
        4,
        9,
        6,
        8,
        7,
        10,
        10,
        8,
    ]
