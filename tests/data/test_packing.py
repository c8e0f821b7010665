"""Packed sequences: the documents of an epoch in one line, cut without loss."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.data.order import ShuffledOrder
from footplate.data.packing import PackedOrder
from footplate.data.selection import Ids, Selection
from footplate.errors import DataError

# The length of each document of each row group: empty documents and empty row groups among them,
# and documents longer than a sequence or than a pool.
_DOCUMENTS = st.lists(st.lists(st.integers(0, 15), max_size=5), min_size=1, max_size=12)
_LENGTHS = st.integers(1, 12)
_SEEDS = st.integers(0, 2**63 - 1)


def _shuffled(documents: list[list[int]], first_row: int = 0) -> ShuffledOrder:
    return ShuffledOrder([len(group) for group in documents], seed=4, pool=3, first_row=first_row)


def _packed(documents: list[list[int]], length: int, first_row: int = 0) -> PackedOrder:
    return PackedOrder(
        _shuffled(documents, first_row),
        length=length,
        group_values=[sum(group) for group in documents],
        lengths_of=lambda group: np.array(documents[group], dtype=np.int64),
    )


def _values(selection: Selection) -> list[list[tuple[int, int]]]:
    """Each sequence as (document, number of the value in it)."""
    assert selection.offsets is not None
    assert selection.begins is not None
    assert selection.ends is not None
    values = []
    for number in range(len(selection)):
        pieces = slice(selection.offsets[number], selection.offsets[number + 1])
        ids, begins, ends = (
            array[pieces].tolist() for array in (selection.ids, selection.begins, selection.ends)
        )
        assert len(set(ids)) == len(ids), "a document is one piece of a sequence"
        assert all(begin < end for begin, end in zip(begins, ends, strict=True))
        values.append(
            [
                (row, value)
                for row, begin, end in zip(ids, begins, ends, strict=True)
                for value in range(begin, end)
            ]
        )
    return values


def _line(documents: list[list[int]], epoch: int) -> list[tuple[int, int]]:
    """All values of an epoch, one document after the other."""
    lengths = [length for group in documents for length in group]
    order = _shuffled(documents)
    rows = order.take(epoch, 0, order.rows).ids.tolist()
    return [(row, value) for row in rows for value in range(lengths[row])]


@given(documents=_DOCUMENTS, length=_LENGTHS, epoch=st.integers(0, 3))
def test_sequences_are_the_line_cut(documents: list[list[int]], length: int, epoch: int) -> None:
    """Every value of the epoch is in one sequence, in its place, but for an incomplete last one."""
    order = _packed(documents, length)
    line = _line(documents, epoch)

    found = _values(order.take(epoch, 0, order.rows))

    assert order.rows == len(line) // length
    assert found == [line[at * length : (at + 1) * length] for at in range(order.rows)]


@given(documents=_DOCUMENTS, length=_LENGTHS, data=st.data())
def test_a_part_is_a_slice_of_the_whole(
    documents: list[list[int]], length: int, data: st.DataObject
) -> None:
    """Any range of sequences can be taken at any time, and is what stands there in the whole."""
    order = _packed(documents, length)
    bounds = st.integers(0, order.rows)

    for _ in range(5):
        epoch = data.draw(st.integers(0, 2))
        start, stop = sorted(data.draw(st.tuples(bounds, bounds)))
        whole = _packed(documents, length).take(epoch, 0, order.rows)
        assert _values(order.take(epoch, start, stop)) == _values(whole)[start:stop]


def test_a_part_of_a_mixture_has_its_own_rows() -> None:
    """The documents of a later part are numbered from its first row."""
    documents = [[5, 5], [5, 5]]

    found = _packed(documents, 10, first_row=100).take(0, 0, 2)

    assert sorted(found.ids.tolist()) == [100, 101, 102, 103]


def test_going_on_looks_only_where_it_is() -> None:
    """In the thousandth epoch the lengths of one pool's row groups are read, or of two."""
    looked_into = []

    def lengths_of(group: int) -> Ids:
        looked_into.append(group)
        return np.full(20, 7, dtype=np.int64)

    order = PackedOrder(
        ShuffledOrder([20] * 1000, seed=1, pool=8),
        length=50,
        group_values=[140] * 1000,
        lengths_of=lengths_of,
    )

    for start in range(1400, 1432, 8):
        order.take(1000, start, start + 8)

    assert len(looked_into) in (8, 16)


def test_the_lengths_of_a_pool_are_asked_for_at_once() -> None:
    """A store takes its time for each row group, and the first sequence waits for all of a pool."""
    all_asked = threading.Barrier(4, timeout=30)

    def lengths_of(group: int) -> Ids:
        all_asked.wait()
        return np.full(5, 10, dtype=np.int64)

    order = PackedOrder(
        ShuffledOrder([5] * 4, seed=1, pool=4),
        length=50,
        group_values=[50] * 4,
        lengths_of=lengths_of,
    )

    assert len(order.take(0, 0, 4)) == 4


def test_lists_of_other_lengths_are_the_fault_of_the_data() -> None:
    """Nulls in lists are no values to the manifest: what is there then does not fit its counts."""
    order = PackedOrder(
        ShuffledOrder([2], seed=0),
        length=2,
        group_values=[4],
        lengths_of=lambda group: np.array([3, 2], dtype=np.int64),
    )

    with pytest.raises(DataError, match="should hold 4 numbers hold 5") as caught:
        order.take(0, 0, 1)
    assert "nulls" in caught.value.hint
