"""Memory that is used again: only when nobody looks at it any more."""

from __future__ import annotations

import threading
import tracemalloc
from collections import deque
from typing import Any

import numpy as np
import pyarrow
import pytest

from footplate.data.buffers import Buffers, Shelf
from footplate.data.columns import Matrix, Objects, Pieces

_SHAPE = (64, 2048)


def _address(array: object) -> int:
    assert isinstance(array, np.ndarray)
    return int(array.ctypes.data)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "float64", "complex64"])
def test_arrays_are_ordinary_ones(dtype: str) -> None:
    """Of the shape and the type asked for, in order, and to be written to."""
    buffers = Buffers(kept=2)
    for shape in (_SHAPE, (3,), (0, 5), (100_000,), (40, 50, 60)):
        array = buffers.empty(shape, np.dtype(dtype))
        array[...] = 1
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.flags.c_contiguous
        assert array.flags.writeable


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    """A view of a view is enough to keep all of it."""
    buffers = Buffers(kept=2)
    first = buffers.empty(_SHAPE, np.dtype(np.int32))
    address, view = _address(first), first[3:, 5:][1:]
    first[...] = 7
    del first
    other = buffers.empty(_SHAPE, np.dtype(np.int32))
    other[...] = 0
    assert (view == 7).all()
    assert _address(other) != address
    del view
    assert _address(buffers.empty(_SHAPE, np.dtype(np.float32))) == address


def test_only_so_much_is_kept() -> None:
    """What nobody uses is free, but for a few pieces; those that are too small are not used."""
    buffers = Buffers(kept=2)
    tracemalloc.start()
    many = [buffers.empty(_SHAPE, np.dtype(np.int32)) for _ in range(5)]
    del many
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 3 << 20
    assert buffers.empty((1 << 21,), np.dtype(np.int32)).shape == (1 << 21,)


def test_each_size_is_kept_for_itself() -> None:
    """A large piece is not taken for a small array, and so is there when it is needed."""
    buffers = Buffers(kept=2)
    large = buffers.empty((8 << 20,), np.dtype(np.uint8))
    address = _address(large)
    del large
    small = [buffers.empty((1 << 20,), np.dtype(np.uint8)) for _ in range(4)]
    assert _address(buffers.empty((8 << 20,), np.dtype(np.uint8))) == address
    addresses = {_address(array) for array in small}
    del small
    again = [buffers.empty((1 << 20,), np.dtype(np.uint8)) for _ in range(2)]
    assert {_address(array) for array in again} <= addresses


def test_types_are_any() -> None:
    """Also those with names and types within."""
    pair = np.dtype([("left", np.int32), ("right", "<f8", (2,))])
    for dtype in (pair, np.dtype(">i4"), np.dtype("S7"), np.dtype("datetime64[us]")):
        array = Buffers(kept=1).empty((300, 400), dtype)
        assert (array.dtype, array.shape) == (dtype, (300, 400))
        array[...] = np.zeros((), dtype)
        assert (array == np.zeros((), dtype)).all()


def test_threads_get_memory_of_their_own() -> None:
    """Whoever lets go of it where, nobody else has it at the same time."""
    buffers = Buffers(kept=4)
    wrong: list[int] = []

    def use(number: int) -> None:
        held: deque[Any] = deque(maxlen=3)
        for turn in range(300):
            array = buffers.empty((1 + turn % 2, 1 << 17), np.dtype(np.int64))
            array[...] = number
            held.append(array[:, 5:])
            if any((each[:, ::4096] != number).any() for each in held):
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _source(first: int, rows: int, pieces: int) -> Matrix:
    values = np.arange(first * 6, (first + rows) * 6, dtype=np.int32).reshape(rows, 2, 3)
    return Matrix(np.array_split(values, pieces))


@pytest.mark.parametrize("places", [0, 1, 2, 3])
@pytest.mark.parametrize("pieces", [1, 3])
def test_samples_are_the_same_wherever_row_groups_are(places: int, pieces: int) -> None:
    """On the shelf, beside it for want of room, or both."""
    shelf = Shelf(places, rows=10)
    sources, found = zip(
        *(shelf.put({"x": _source(10 * group, 10, pieces)}) for group in range(3)), strict=True
    )
    assert sum(place is not None for place in found) == places
    ids = np.array([29, 0, 10, 9, 11, 29])
    groups, which = Pieces.of(ids // 10, ids % 10)
    parts = [sources[group]["x"] for group in groups]
    expected = np.arange(180, dtype=np.int32).reshape(30, 2, 3)[ids]
    np.testing.assert_array_equal(Matrix.gathered(parts, which), expected)


def test_places_are_used_again() -> None:
    """What was copied stays what it is until its place is cleared."""
    shelf = Shelf(1, rows=4)
    kept, place = shelf.put({"x": _source(0, 4, 2)})
    other, none = shelf.put({"x": _source(4, 3, 1)})
    assert (place, none) == (0, None)
    shelf.clear(none)
    shelf.clear(place)
    again, place = shelf.put({"x": _source(8, 2, 1)})
    assert place == 0
    assert again["x"].values[0, 0, 0] == 48
    assert other["x"].values[0, 0, 0] == 24
    assert kept["x"].values.base is again["x"].values.base


def test_a_place_is_a_copy() -> None:
    """What is on the shelf, or beside it, does not change with what it was copied from."""
    for places in (0, 1):
        source = _source(0, 4, 1)
        kept, _ = Shelf(places, rows=4).put({"x": source})
        source.pieces[0][...] = -1
        assert kept["x"].values.min() == 0


def test_the_place_that_was_used_last_is_used_next() -> None:
    """Others, whose memory nobody has touched yet, take none."""
    shelf = Shelf(5, rows=4)
    places = []
    for group in range(6):
        _, place = shelf.put({"x": _source(4 * group, 4, 1)})
        _, other = shelf.put({"x": _source(4 * group, 4, 1)})
        places += [place, other]
        shelf.clear(place)
        shelf.clear(other)
    assert set(places) == {0, 1}


def test_objects_of_a_fixed_size_are_copied() -> None:
    """They may be views of a file; texts have been put together."""
    content = bytearray(b"abcd")
    ids = pyarrow.Array.from_buffers(pyarrow.binary(2), 2, [None, pyarrow.py_buffer(content)])
    kept, _ = Shelf(1, rows=4).put({"id": Objects(ids), "x": _source(0, 2, 1)})
    content[:] = b"????"
    (found,) = (source for source in kept.values() if isinstance(source, Objects))
    assert found.values.to_pylist() == [b"ab", b"cd"]


def test_what_is_no_array_stays_where_it_is() -> None:
    """Python objects take no place."""
    shelf = Shelf(1, rows=4)
    texts = Objects(pyarrow.array(["a", "b"]))
    kept, place = shelf.put({"text": texts})
    assert (kept["text"], place) == (texts, None)
