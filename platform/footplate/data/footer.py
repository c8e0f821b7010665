"""
What a Parquet file says of itself: schema, row groups, where each column lies.

The footer is at the end of the file. One request fetches the last bytes, which mostly hold all of
it, together with the size of the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from footplate.data.manifest import RowGroup, SchemaField
from footplate.data.schema import fields_of
from footplate.errors import DataError, MissingExtraError, ObjectNotFoundError
from footplate.store import ObjectInfo, Store

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyarrow.types as types
except ImportError as error:
    raise MissingExtraError("train", ("pyarrow",)) from error

__all__ = ["TAIL_BYTES", "Footer", "footer_length", "read_footer"]

TAIL_BYTES = 64 << 10
"""Mostly enough for a whole footer; a file may have much else (its page index) before it."""

# Length of the metadata in four bytes, and the magic number.
_END_BYTES = 8
# Writers cut longer texts in their statistics, mostly to 64 bytes: the least would not be one.
_TEXT_BYTES = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Footer:
    """
    The metadata of a file.

    Attributes:
        info: Name, size and etag of the file as it was when the footer was read.
        fields: With the statistics of this file.
        row_groups: Without digests; ``values`` is None where it takes a look at the data.
        uncounted: Lists whose values the footer does not tell, by name.
    """

    info: ObjectInfo
    fields: tuple[SchemaField, ...]
    row_groups: tuple[RowGroup, ...]
    uncounted: tuple[str, ...]


def read_footer(store: Store, path: str, *, size: int | None = None) -> Footer:
    """
    Read the footer of a file.

    Args:
        size: That the file must have, or None for any.

    Raises:
        DataError: If it is missing, of another size, no Parquet file, damaged, or encrypted.
        StoreError: If the store fails.
    """
    where = store.locate(path)
    try:
        info, content = _fetch(store, path, where, size)
    except ObjectNotFoundError as error:
        raise DataError(f"{where} is missing") from error
    try:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(content)))
        if metadata.serialized_size < footer_length(content) - _END_BYTES:
            # A signature: some columns are encrypted, and Arrow ends the process that looks.
            raise _encrypted(where)
        return _interpreted(metadata, info, where)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{where} is no readable Parquet file: {error}") from error


def footer_length(tail: memoryview) -> int:
    """Bytes of the footer, by the end of a file: its metadata, their length, the magic number."""
    return int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES


def _fetch(store: Store, path: str, where: str, size: int | None) -> tuple[ObjectInfo, memoryview]:
    """The end of the file, from the footer's first byte."""
    info, content = store.tail(path, TAIL_BYTES)
    if size not in (None, info.size):
        raise DataError(f"{where} has {info.size} bytes, not {size}")
    magic = bytes(content[-4:])
    if magic == b"PARE":
        raise _encrypted(where)
    if magic != b"PAR1" or info.size < _END_BYTES:
        raise DataError(
            f"{where} is no readable Parquet file: it does not end like one",
            "It was cut off, is still being written, or is something else.",
        )
    length = footer_length(content)
    if length > info.size:
        raise DataError(
            f"{where} is no readable Parquet file: {info.size} bytes, and a footer of {length}"
        )
    if length > len(content):
        content = store.read(path, info.size - length, info.size)
    return info, content


def _encrypted(where: str) -> DataError:
    return DataError(
        f"{where} is encrypted", "Encrypted Parquet can't be read here; write it without."
    )


def _interpreted(metadata: pq.FileMetaData, info: ObjectInfo, where: str) -> Footer:
    schema = metadata.schema.to_arrow_schema()
    if not len(schema):
        raise DataError(f"{where} has no columns")
    columns = _columns_of_fields(schema, metadata.num_columns, where)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [[group.column(column) for column in range(group.num_columns)] for group in groups]
    fields = [
        _with_statistics(field, schema.field(field.name), [row[span] for row in chunks])
        for field, span in zip(fields_of(schema, where), columns, strict=True)
    ]
    listed = [_is_flat_list(field.type) for field in schema]
    row_groups = tuple(
        _row_group(group.num_rows, [row[span] for span in columns], listed, info.size, where)
        for group, row in zip(groups, chunks, strict=True)
    )
    uncounted = tuple(
        field.name
        for index, field in enumerate(fields)
        if listed[index] and any(group.values[index] is None for group in row_groups)
    )
    return Footer(info=info, fields=tuple(fields), row_groups=row_groups, uncounted=uncounted)


def _columns_of_fields(schema: pa.Schema, count: int, where: str) -> list[slice]:
    """Which of Parquet's columns each field is: those of a nested one lie side by side."""
    spans: list[slice] = []
    begin = 0
    for field in schema:
        end = begin + _leaves(field.type)
        spans.append(slice(begin, end))
        begin = end
    if begin != count:
        raise DataError(f"{where} has {count} columns, and its schema {begin}")
    return spans


def _leaves(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if types.is_dictionary(kind):
        return 1
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields)) or 1


def _is_flat_list(kind: pa.DataType) -> bool:
    return (types.is_list(kind) or types.is_large_list(kind)) and not types.is_nested(
        kind.value_type
    )


def _row_group(
    rows: int, chunks: list[list[Any]], listed: list[bool], file_size: int, where: str
) -> RowGroup:
    begins = [min(map(_begin, parts)) for parts in chunks]
    ends = [max(_begin(part) + part.total_compressed_size for part in parts) for parts in chunks]
    if min(begins) < 0 or max(ends) > file_size or any(map(int.__lt__, ends, begins)):
        raise DataError(f"{where} is damaged: its footer names bytes that the file does not have")
    return RowGroup(
        rows=rows,
        offsets=tuple(begins),
        sizes=tuple(end - begin for begin, end in zip(begins, ends, strict=True)),
        digests=(),
        values=tuple(
            _values(parts[0]) if is_list else None
            for parts, is_list in zip(chunks, listed, strict=True)
        ),
    )


def _begin(chunk: Any) -> int:
    data: int = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset
    # Some writers leave 0 where there is no dictionary.
    return min(data, dictionary) if dictionary else data


def _values(chunk: Any) -> int | None:
    """An empty list and a missing one count as a value of Parquet's, and as a null."""
    if not chunk.num_values:
        return 0
    statistics = chunk.statistics if chunk.is_stats_set else None
    if statistics is None or not statistics.has_null_count:
        return None
    return int(chunk.num_values - statistics.null_count)


def _with_statistics(field: SchemaField, arrow: pa.Field, chunks: list[list[Any]]) -> SchemaField:
    statistics = [
        chunk.statistics if chunk.is_stats_set else None
        for parts in chunks
        for chunk in parts
        if chunk.num_values
    ]
    minimum, maximum = _extremes(arrow.type, statistics)
    nulls = _nulls(arrow, statistics)
    return field.model_copy(update={"nulls": nulls, "minimum": minimum, "maximum": maximum})


def _nulls(arrow: pa.Field, statistics: list[Any]) -> int | None:
    nested = types.is_nested(arrow.type)
    if not arrow.nullable and not nested:
        return 0
    if any(found is None or not found.has_null_count for found in statistics):
        return None
    nulls = sum(found.null_count for found in statistics)
    # Inside a nested field an empty list counts, too.
    return None if nested and nulls else nulls


def _extremes(kind: pa.DataType, statistics: list[Any]) -> tuple[Any, Any]:
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if not (types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or is_text):
        return None, None
    # A row group of nothing but nulls has no extremes, and needs none.
    told = [found for found in statistics if found is None or found.num_values]
    if not told or any(found is None or not found.has_min_max for found in told):
        return None, None
    extremes = min(found.min for found in told), max(found.max for found in told)
    return extremes if all(map(_is_exact, extremes)) else (None, None)


def _is_exact(value: int | float | str) -> bool:
    if isinstance(value, str):
        return len(value.encode()) <= _TEXT_BYTES
    return math.isfinite(value)
