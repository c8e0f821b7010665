"""What the columns of a data set are, out of Arrow's schema."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from footplate.data.manifest import SchemaField
from footplate.errors import DataError, MissingExtraError

try:
    import numpy as np
    import pyarrow as pa
except ImportError as error:
    raise MissingExtraError("train", ("numpy", "pyarrow")) from error

__all__ = ["DTYPE", "SHAPE", "fields_of", "schema_difference"]

DTYPE = b"footplate.dtype"
"""The key of a field's metadata that says which numbers its bytes are."""
SHAPE = b"footplate.shape"
"""The key that says the shape of one sample, as a list in JSON."""


def fields_of(schema: pa.Schema, source: str) -> tuple[SchemaField, ...]:
    """
    The columns of a schema.

    Args:
        source: Whose schema it is, for the message.

    Raises:
        DataError: If two columns have one name, or one does not say what its bytes are.
    """
    names = [field.name for field in schema]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{source} has more than one column {', '.join(twice)}")
    return tuple(_field_of(field, source) for field in schema)


def schema_difference(expected: Sequence[SchemaField], found: Sequence[SchemaField]) -> str | None:
    """How columns differ in name, order, type or shape; None if they do not."""
    names = [field.name for field in expected]
    found_names = [field.name for field in found]
    if names != found_names:
        return f"its columns: {', '.join(found_names)} instead of {', '.join(names)}"
    for one, other in zip(expected, found, strict=True):
        if one.form != other.form:
            return f"column {one.name!r}: {other.form} instead of {one.form}"
    return None


def _field_of(field: pa.Field, source: str) -> SchemaField:
    metadata = field.metadata or {}
    if DTYPE not in metadata and SHAPE not in metadata:
        return SchemaField(name=field.name, type=str(field.type))
    try:
        dtype = metadata[DTYPE].decode()
        shape = tuple(int(size) for size in json.loads(metadata[SHAPE]))
        width = np.dtype(dtype).itemsize * math.prod(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{source}: column {field.name!r} does not say what its bytes are: {error!r}",
            "footplate.data.tables.fixed_binary_column makes the field and the values.",
        ) from error
    if field.type != pa.binary(width):
        raise DataError(
            f"{source}: column {field.name!r} is {field.type}, "
            f"but {dtype} of shape {list(shape)} takes {width} bytes"
        )
    return SchemaField(name=field.name, type=str(field.type), dtype=dtype, shape=shape)
