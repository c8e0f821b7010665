"""From Arrow columns to NumPy arrays, one row a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from footplate.data.manifest import DataManifest, SchemaField
from footplate.errors import DataError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["decode"]

Column = np.ndarray[Any, Any] | list[Any]


def decode(table: pyarrow.Table, manifest: DataManifest) -> dict[str, Column]:
    """
    The columns of a table by name.

    Returns:
        Numbers as arrays of shape (N,); fixed-size lists and typed fixed-size binaries as
        (N, ...); texts and other bytes as lists of N Python objects. Arrays may be read-only
        views of the table's memory.

    Raises:
        DataError: If a column holds nulls, in its lists included: they would silently become NaN.
    """
    fields = {field.name: field for field in manifest.fields}
    return {
        name: _column(fields[name], table.column(name).combine_chunks(), manifest)
        for name in table.column_names
    }


def _column(field: SchemaField, array: Any, manifest: DataManifest) -> Column:
    import pyarrow.types as types

    # Lists of lists are flattened to their values, whose shape is that of all the lists.
    values, shape = array, [len(array)]
    _refuse_nulls(values, field, manifest)
    while types.is_fixed_size_list(values.type):
        shape.append(values.type.list_size)
        values = values.flatten()
        _refuse_nulls(values, field, manifest)
    if field.dtype is not None:
        return _typed_binary(field, array)
    if (
        types.is_integer(values.type)
        or types.is_floating(values.type)
        or types.is_boolean(values.type)
    ):
        numbers: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
        return numbers.reshape(shape)
    objects: list[Any] = array.to_pylist()
    return objects


def _refuse_nulls(array: Any, field: SchemaField, manifest: DataManifest) -> None:
    if array.null_count:
        raise DataError(
            f"column {field.name} of data set {manifest.name} has {array.null_count} nulls here",
            "Fill or remove them when the data set is prepared.",
        )


def _typed_binary(field: SchemaField, array: Any) -> np.ndarray[Any, Any]:
    dtype = np.dtype(field.dtype)
    width = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    begin = array.offset * width
    samples = raw[begin : begin + len(array) * width].view(dtype)
    return samples.reshape(len(array), *((-1,) if field.shape is None else field.shape))
