"""Selections: taking some of the samples keeps each of them whole."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.data.selection import Selection

_Sample = list[tuple[int, int, int]]

_PIECES = st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(10, 19))
_SAMPLES = st.lists(st.lists(_PIECES, max_size=4), max_size=8)


def _rows(ids: list[int]) -> Selection:
    return Selection(np.array(ids, dtype=np.int64))


def _packed(samples: list[_Sample]) -> Selection:
    pieces = np.array([piece for sample in samples for piece in sample], dtype=np.int64)
    ids, begins, ends = pieces.reshape(-1, 3).T
    return Selection(ids, np.cumsum([0, *map(len, samples)]), begins, ends)


def _samples(selection: Selection) -> list[_Sample]:
    """What each sample is made of."""
    assert selection.offsets is not None
    assert selection.begins is not None
    assert selection.ends is not None
    pieces = list(
        zip(selection.ids.tolist(), selection.begins.tolist(), selection.ends.tolist(), strict=True)
    )
    bounds = selection.offsets.tolist()
    assert (bounds[0], bounds[-1]) == (0, len(pieces))
    return [pieces[first:last] for first, last in itertools.pairwise(bounds)]


@given(samples=_SAMPLES, data=st.data())
def test_a_slice_is_some_of_the_samples(samples: list[_Sample], data: st.DataObject) -> None:
    """A slice of a selection is what a slice of a list of its samples would be."""
    bounds = st.none() | st.integers(-10, 10)
    where = slice(data.draw(bounds), data.draw(bounds))

    assert len(_packed(samples)) == len(samples)
    assert _samples(_packed(samples)[where]) == samples[where]
    ids = list(range(len(samples)))
    assert _rows(ids)[where].ids.tolist() == ids[where]


@given(samples=_SAMPLES.filter(bool), data=st.data())
def test_samples_can_be_picked(samples: list[_Sample], data: st.DataObject) -> None:
    """Any samples, in any sequence and repeated, come out whole."""
    picked = data.draw(st.lists(st.integers(0, len(samples) - 1)))

    found = _packed(samples).picked(np.array(picked, dtype=np.int64))

    assert _samples(found) == [samples[number] for number in picked]


@given(parts=st.lists(_SAMPLES, min_size=1, max_size=4))
def test_parts_are_joined(parts: list[list[_Sample]]) -> None:
    """Joining keeps every sample of every part, empty parts and empty samples included."""
    joined = Selection.concatenated([_packed(part) for part in parts])

    assert _samples(joined) == [sample for part in parts for sample in part]


def test_rows_are_joined_as_rows() -> None:
    """What was not packed stays so."""
    joined = Selection.concatenated([_rows([1, 2]), _rows([]), _rows([5])])

    assert joined.ids.tolist() == [1, 2, 5]
    assert (joined.offsets, joined.begins, joined.ends) == (None, None, None)


def test_rows_and_pieces_do_not_mix() -> None:
    """Samples of rows and samples of pieces have no common form."""
    with pytest.raises(AssertionError):
        Selection.concatenated([_rows([1]), _packed([[(1, 0, 1)]])])
