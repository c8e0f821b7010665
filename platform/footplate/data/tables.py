"""
Tables of samples, out of what a prepare function makes.

Numbers of a fixed shape (an image, a window of text) are kept as a fixed-size binary column, whose
field says in its metadata what the bytes are: readers hand them to the model without decoding a
single value.

The module needs pyarrow, so nothing of the client imports it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from footplate.data.schema import DTYPE, SHAPE
from footplate.errors import DataError, MissingExtraError

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise MissingExtraError("train", ("numpy", "pyarrow")) from error

__all__ = ["fixed_binary_column", "table_of"]

# Booleans, integers, real and complex numbers: what numpy stores by value.
_NUMBER_KINDS = "biufc"

Column = tuple[pa.Field, pa.Array]


def fixed_binary_column(name: str, array: np.ndarray[Any, Any]) -> Column:
    """
    A column that holds numbers of a fixed shape, without a copy where the array allows it.

    Args:
        name: Of the column.
        array: Shape ``(samples, *shape of one sample)``.

    Returns:
        The field, which carries dtype and shape, and the values.

    Raises:
        DataError: If the array holds something else than numbers, or nothing for a sample.
    """
    dtype, shape = array.dtype, array.shape[1:]
    if dtype.kind not in _NUMBER_KINDS:
        raise DataError(f"column {name!r} has dtype {dtype}; only numbers have a fixed size")
    if not array.ndim or not math.prod(shape):
        raise DataError(f"column {name!r} has shape {array.shape}; no sample holds a number")
    width = dtype.itemsize * math.prod(shape)
    content = np.ascontiguousarray(array, dtype=dtype.newbyteorder("<"))
    metadata = {DTYPE: dtype.name, SHAPE: json.dumps(shape)}
    field = pa.field(name, pa.binary(width), nullable=False, metadata=metadata)
    buffers = [None, pa.py_buffer(content)]
    return field, pa.FixedSizeBinaryArray.from_buffers(field.type, len(array), buffers)


def table_of(columns: Mapping[str, Any] | pa.Table) -> pa.Table:
    """
    The samples of some columns.

    Args:
        columns: By name, all of one length. Of arrays, those of shape (N,) become numbers, and
            those of more dimensions a fixed-size binary column. Lists may hold texts, bytes,
            numbers, lists, or arrays: one-dimensional ones may differ in their length.

    Returns:
        A table without nulls.

    Raises:
        DataError: If a column is something else, has nulls, or another length than the others.
    """
    if isinstance(columns, pa.Table):
        made = [_as_it_is(*pair) for pair in zip(columns.schema, columns.columns, strict=True)]
    else:
        made = [_column(str(name), values) for name, values in columns.items()]
    if not made:
        raise DataError("there are no columns")
    lengths = {field.name: len(values) for field, values in made}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"columns differ in their number of samples: {told}")
    fields, values = zip(*made, strict=True)
    return pa.Table.from_arrays(list(values), schema=pa.schema(fields))


def _as_it_is(field: pa.Field, values: pa.Array | pa.ChunkedArray) -> Column:
    if values.null_count:
        raise DataError(
            f"column {field.name!r} has {values.null_count} nulls",
            "Every sample has every column; leave such samples out or fill them in.",
        )
    if count := _nulls_in_lists(values):
        raise DataError(
            f"column {field.name!r} has {count} nulls in its lists",
            "Leave them out or fill them in.",
        )
    return field.with_nullable(False), values


def _nulls_in_lists(values: pa.Array | pa.ChunkedArray) -> int:
    count = 0
    while not count and isinstance(
        values.type, pa.ListType | pa.LargeListType | pa.FixedSizeListType
    ):
        values = pc.list_flatten(values)
        count = values.null_count
    return count


def _column(name: str, values: Any) -> Column:
    if isinstance(values, np.ndarray) and values.dtype.kind in _NUMBER_KINDS:
        if values.ndim != 1:
            return fixed_binary_column(name, values)
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
    elif isinstance(values, np.ndarray):
        values = values.tolist()
    elif isinstance(values, Sequence) and any(isinstance(value, np.ndarray) for value in values):
        return _column_of_arrays(name, values)
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(f"column {name!r} cannot be stored: {error}") from error
    return _as_it_is(pa.field(name, array.type), array)


def _column_of_arrays(name: str, values: Sequence[Any]) -> Column:
    """Arrays of one dimension are lists of any length; others have to have one shape."""
    arrays = [np.asarray(value) for value in values]
    if any(array.dtype != arrays[0].dtype for array in arrays):
        found = ", ".join(sorted({str(array.dtype) for array in arrays}))
        raise DataError(f"column {name!r} holds arrays of different dtypes: {found}")
    if all(array.ndim == 1 for array in arrays):
        lengths = [len(array) for array in arrays]
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        _, inner = _column(name, np.concatenate(arrays))
        array = pa.ListArray.from_arrays(offsets, inner)
        return pa.field(name, array.type, nullable=False), array
    if any(array.shape != arrays[0].shape for array in arrays):
        found = ", ".join(sorted({str(list(array.shape)) for array in arrays}))
        raise DataError(
            f"column {name!r} holds arrays of different shapes: {found}",
            "Only one-dimensional arrays may differ; give the others one shape.",
        )
    return _column(name, np.stack(arrays))
