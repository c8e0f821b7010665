"""From Arrow columns to arrays: the values as they were, or an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.data import SchemaField
from footplate.data.columns import decode
from footplate.data.tables import fixed_binary_column
from footplate.errors import DataError


def _fields(table: pa.Table, **typed: np.ndarray[Any, Any]) -> dict[str, SchemaField]:
    """What a manifest says of the columns of such a table."""
    return {
        field.name: SchemaField(
            name=field.name,
            type=str(field.type),
            dtype=typed[field.name].dtype.name if field.name in typed else None,
            shape=typed[field.name].shape[1:] if field.name in typed else None,
        )
        for field in table.schema
    }


def _decoded(array: pa.Array | pa.ChunkedArray) -> Any:
    table = pa.table({"column": array})
    return decode(table, _fields(table))["column"]


_DTYPES = ["bool", "uint8", "int16", "uint32", "int64", "float16", "float32", "float64"]


@given(
    dtype=st.sampled_from([*_DTYPES, "complex64"]),
    shape=st.lists(st.integers(1, 3), max_size=3),
    rows=st.integers(1, 8),
    chunks=st.integers(1, 3),
    data=st.data(),
)
def test_typed_binaries_come_back(
    dtype: str, shape: list[int], rows: int, chunks: int, data: st.DataObject
) -> None:
    """Numbers of any type and shape come back bit for bit, also out of the middle of a column."""
    values = np.arange(rows * chunks * int(np.prod(shape))).astype(dtype)
    values = values.reshape(rows * chunks, *shape)
    field, column = fixed_binary_column("x", values)
    pieces = [column.slice(at * rows, rows) for at in range(chunks)]
    table = pa.table([pa.chunked_array(pieces)], schema=pa.schema([field]))
    start = data.draw(st.integers(0, rows * chunks - 1))
    count = data.draw(st.integers(1, rows * chunks - start))

    found = decode(table.slice(start, count), _fields(table, x=values))["x"]

    assert isinstance(found, np.ndarray)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values[start : start + count])


def test_big_endian_numbers_come_back() -> None:
    """The byte order of the array that a data set was built from makes no difference."""
    values = np.array([[1, 258], [70000, 4]], dtype=">i4")
    field, column = fixed_binary_column("x", values)
    table = pa.table([column], schema=pa.schema([field]))

    found = decode(table, _fields(table, x=values.astype("<i4")))["x"]

    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_numbers_are_arrays(dtype: str) -> None:
    """A column of numbers or truths is an array of the same type, sliced or not."""
    values = np.arange(6).astype(dtype)
    array = pa.array(values)

    for found, expected in ((_decoded(array), values), (_decoded(array[2:5]), values[2:5])):
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_fixed_size_lists_are_matrices(dtype: str) -> None:
    """Lists of one size are the rows of a matrix; a slice begins at its own first row."""
    rows = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]]).astype(dtype)
    array = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 3)

    for found, expected in (
        (_decoded(array), rows),
        (_decoded(array[1:3]), rows[1:3]),
        (_decoded(pa.chunked_array([array[2:], array[:1]])), rows[[2, 3, 0]]),
    ):
        assert found.dtype == rows.dtype
        np.testing.assert_array_equal(found, expected)


def test_lists_of_lists_have_more_dimensions() -> None:
    """Fixed-size lists in fixed-size lists are one array, sliced or not."""
    values = np.arange(24).reshape(4, 2, 3)
    array = pa.array(values.tolist(), pa.list_(pa.list_(pa.int32(), 3), 2))

    np.testing.assert_array_equal(_decoded(array), values)
    np.testing.assert_array_equal(_decoded(array[1:3]), values[1:3])


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array(["a", "", "ü"]), ["a", "", "ü"]),
        (pa.array([b"a", b"\x00"]), [b"a", b"\x00"]),
        (pa.array([b"ab", b"cd"], pa.binary(2)), [b"ab", b"cd"]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
        (pa.array([["a", "b"]], pa.list_(pa.string(), 2)), [["a", "b"]]),
    ],
)
def test_other_values_are_objects(array: pa.Array, expected: list[Any]) -> None:
    """What is no number of a fixed shape comes as Python objects, sliced or not."""
    assert _decoded(array) == expected
    assert _decoded(array[1:]) == expected[1:]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
@pytest.mark.parametrize("dtype", _DTYPES)
def test_lists_of_numbers_are_arrays(dtype: str, kind: Any) -> None:
    """Lists of any length come as arrays of their type, sliced or not, empty ones too."""
    rows = [np.arange(count).astype(dtype) for count in (2, 0, 3, 1)]
    array = pa.array(rows, kind(pa.from_numpy_dtype(np.dtype(dtype))))

    for found, expected in (
        (_decoded(array), rows),
        (_decoded(array[1:3]), rows[1:3]),
        (_decoded(pa.chunked_array([array[2:], array[:1]])), [rows[2], rows[3], rows[0]]),
        (_decoded(array[:0]), []),
        (_decoded(pa.array([], array.type)), []),
    ):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1.0, None, 3.0]),
        pa.array([1, None, 3]),
        pa.array(["a", None]),
        pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        pa.array([[1.0, None], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        pa.array([[[1.0]], [[None]]], pa.list_(pa.list_(pa.float32(), 1), 1)),
        pa.array([[1, None], []]),
        pa.array([[1], None]),
    ],
)
def test_nulls_are_refused(array: pa.Array) -> None:
    """A missing number, also one inside a list, is an error and not silently NaN."""
    with pytest.raises(DataError, match="column column has 1 nulls"):
        _decoded(array)


def test_nulls_outside_of_a_slice_do_not_matter() -> None:
    """Only what is delivered has to be there."""
    np.testing.assert_array_equal(_decoded(pa.array([None, 2, 3])[1:]), [2, 3])


def test_columns_keep_their_names() -> None:
    """All columns of the table come, by name, and no other of the manifest."""
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})

    found = decode(table.select(["b"]), _fields(table))

    assert found == {"b": ["x", "y"]}
