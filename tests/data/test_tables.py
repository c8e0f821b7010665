"""What a prepare function returns becomes a table that readers understand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from footplate.data.schema import DTYPE, SHAPE, fields_of
from footplate.data.tables import fixed_binary_column, table_of
from footplate.errors import DataError


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.arange(24, dtype=">i4").reshape(4, 6),
        np.linspace(0, 1, 24).reshape(4, 6)[::-1, ::2],
        np.array([[True, False], [False, True]]),
        np.array([1.5, -2.0], dtype=np.float16),
    ],
    ids=["bytes", "big-endian", "strided", "booleans", "scalars"],
)
def test_numbers_come_back(array: np.ndarray[Any, Any]) -> None:
    """From dtype and shape in the field's metadata, a reader makes the array that was given."""
    field, column = fixed_binary_column("x", array)

    shape = json.loads(field.metadata[SHAPE])
    dtype = np.dtype(field.metadata[DTYPE].decode()).newbyteorder("<")
    content = b"".join(column.to_pylist())
    np.testing.assert_array_equal(np.frombuffer(content, dtype).reshape(-1, *shape), array)


@pytest.mark.parametrize(
    "array",
    [np.array(["a", "b"]), np.array([None]), np.zeros((3, 0)), np.array(1.0)],
    ids=["text", "objects", "nothing", "no samples"],
)
def test_what_is_no_number_is_refused(array: np.ndarray[Any, Any]) -> None:
    """Only numbers of a fixed shape make such a column."""
    with pytest.raises(DataError, match="column 'x'"):
        fixed_binary_column("x", array)


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (np.zeros((2, 3, 4), np.float32), "fixed_size_binary[48] (float32 of shape [3, 4])"),
        (np.array([1, 2], np.int16), "int16"),
        (np.array([1, 2], ">i8"), "int64"),
        (np.array([True, False]), "bool"),
        (np.array(["a", "bc"]), "string"),
        (["a", "bc"], "string"),
        ([b"\xff\xd8", b"\x89"], "binary"),
        ([1.5, 2.5], "double"),
        ([[1], [2, 3]], "list<item: int64>"),
        ([np.array([1, 2], np.int32), np.array([], np.int32)], "list<item: int32>"),
        ([np.eye(2), np.eye(2)], "fixed_size_binary[32] (float64 of shape [2, 2])"),
        (pa.array([1, 2], pa.int8()), "int8"),
    ],
)
def test_each_kind_of_column_has_its_type(values: Any, form: str) -> None:
    """Arrays, texts, bytes and ragged lists are stored as what they are, never with nulls."""
    table = table_of({"x": values})

    assert [field.form for field in fields_of(table.schema, "here")] == [form]
    assert len(table) == 2
    assert not table.schema.field("x").nullable


def test_ragged_arrays_keep_their_lengths() -> None:
    """Documents of different lengths, an empty one among them, come back as they were given."""
    documents = [np.arange(length, dtype=np.int32) for length in (3, 0, 5)]

    assert table_of({"x": documents}).column("x").to_pylist() == [list(range(n)) for n in (3, 0, 5)]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "no columns"),
        ({"a": [1, 2], "b": [1]}, "differ in their number of samples: a 2, b 1"),
        ({"a": [1, None]}, "'a' has 1 nulls"),
        (pa.table({"a": [1, None]}), "'a' has 1 nulls"),
        ({"a": [[1, None], [2]]}, "'a' has 1 nulls in its lists"),
        ({"a": [[[1], [None]], [None]]}, "'a' has 1 nulls in its lists"),
        (pa.table({"a": pa.array([[1, None]], pa.list_(pa.int8(), 2))}), "'a' has 1 nulls in its"),
        ({"a": [1, "x"]}, "'a' cannot be stored"),
        ({"a": [object()]}, "'a' cannot be stored"),
        ({"a": 3}, "'a' cannot be stored"),
        ({"a": [np.eye(2), np.eye(3)]}, r"different shapes: \[2, 2\], \[3, 3\]"),
        ({"a": [np.zeros(1, "u1"), np.zeros(1, "i4")]}, "different dtypes: int32, uint8"),
    ],
)
def test_unfit_columns_are_refused(columns: Any, said: str) -> None:
    """What a reader could not understand is refused with the name of the column."""
    with pytest.raises(DataError, match=said):
        table_of(columns)
