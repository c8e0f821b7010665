"""
Where the values of a column lie in the pages of a Parquet file, if they lie there as they are.

Values of a fixed size that are neither compressed nor encoded, and none of which is missing, are
in a page what they are in memory: they need no decoding, only to be found. The header of a page
is a structure of Thrift's compact protocol.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Page", "plain_pages", "uncompressed_columns"]

# Of the format's specification: types of pages, an encoding, and the fields of their headers.
_DATA_PAGE, _DATA_PAGE_V2 = 0, 3
_PLAIN = 0
_TYPE, _UNCOMPRESSED_SIZE, _SIZE, _HEADER, _HEADER_V2 = 1, 2, 3, 5, 8
_VALUES, _ENCODING = 1, 2
_ROWS_V2, _ENCODING_V2, _DEFINITION_BYTES_V2, _REPETITION_BYTES_V2 = 3, 4, 5, 6
_LEVELS_LENGTH_BYTES = 4
# And of the metadata of a file: its row groups, their columns, the metadata of these.
_ROW_GROUPS, _COLUMNS, _COLUMN_METADATA, _CODEC = 4, 1, 3, 4
_UNCOMPRESSED = 0

_Fields = dict[int, Any]


class Page(NamedTuple):
    """Some consecutive values: first byte of the first one, and how many."""

    offset: int
    rows: int


def plain_pages(
    content: memoryview, *, width: int, rows: int, is_optional: bool
) -> list[Page] | None:
    """
    The pages of a column in a row group.

    Args:
        content: All its pages.
        width: Bytes of a value.
        rows: In all pages.
        is_optional: Whether values could be missing.

    Returns:
        None if they have to be decoded; that includes all that is not understood.
    """
    content = content.cast("B")  # those of Arrow's memory hold signed numbers
    pages: list[Page] = []
    position = found = 0
    try:
        while position < len(content):
            header, begin = _structure(content, position)
            page = _page(content, header, begin, width, is_optional)
            if page is None:
                return None
            pages.append(page)
            found += page.rows
            position = begin + header[_SIZE]
    except (IndexError, KeyError, RecursionError, TypeError, ValueError):
        return None
    return pages if found == rows and position == len(content) else None


def uncompressed_columns(metadata: memoryview) -> list[list[bool]]:
    """
    Of each row group which columns are not compressed.

    Arrow tells that, too, but ends the process where the metadata contradict themselves.

    Args:
        metadata: Of a file.

    Returns:
        Nothing if they are not understood.
    """
    try:
        fields, _ = _structure(metadata.cast("B"), 0)
        return [
            [column[_COLUMN_METADATA][_CODEC] == _UNCOMPRESSED for column in group[_COLUMNS]]
            for group in fields[_ROW_GROUPS]
        ]
    except (IndexError, KeyError, RecursionError, TypeError, ValueError):
        return []


def _page(
    content: memoryview, header: _Fields, begin: int, width: int, is_optional: bool
) -> Page | None:
    end = begin + header[_SIZE]
    if header[_SIZE] < 0 or header[_SIZE] != header[_UNCOMPRESSED_SIZE]:
        return None
    if header[_TYPE] == _DATA_PAGE:
        told = header[_HEADER]
        encoding, levels = told[_ENCODING], 0
        if is_optional:
            length = content[begin : begin + _LEVELS_LENGTH_BYTES]
            levels = _LEVELS_LENGTH_BYTES + int.from_bytes(length, "little")
    elif header[_TYPE] == _DATA_PAGE_V2:
        told = header[_HEADER_V2]
        encoding = told[_ENCODING_V2]
        levels = told[_DEFINITION_BYTES_V2] + told[_REPETITION_BYTES_V2]
        if told[_ROWS_V2] != told[_VALUES]:
            return None
    else:
        return None
    rows = told[_VALUES]
    if encoding != _PLAIN or levels < 0 or rows <= 0:
        return None
    # A value that is missing takes no bytes: where there are as many as all take, none is.
    return Page(begin + levels, rows) if begin + levels + rows * width == end else None


def _structure(content: memoryview, position: int) -> tuple[_Fields, int]:
    """The fields of a structure by number, and where it ends."""
    fields: _Fields = {}
    number = 0
    while (head := content[position]) != 0:
        position += 1
        if head >> 4:
            number += head >> 4
        else:
            raw, position = _varint(content, position)
            number = _signed(raw)
        fields[number], position = _value(content, position, head & 0x0F)
    return fields, position + 1


def _value(content: memoryview, position: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2):  # the two truths, which take no bytes in a structure
        return kind == 1, position
    if kind == 3:
        return content[position], position + 1
    if kind in (4, 5, 6):
        raw, position = _varint(content, position)
        return _signed(raw), position
    if kind == 7:
        return None, position + 8
    if kind == 8:
        length, position = _varint(content, position)
        return None, position + length
    if kind in (9, 10):
        return _list(content, position)
    if kind == 12:
        return _structure(content, position)
    # Nothing of Parquet's has maps.
    raise ValueError(f"type {kind} in a structure")


def _list(content: memoryview, position: int) -> tuple[list[Any], int]:
    count, kind = divmod(content[position], 16)
    position += 1
    if count == 15:
        count, position = _varint(content, position)
    if count > len(content) - position:  # each takes a byte at least
        raise ValueError(f"{count} elements in {len(content) - position} bytes")
    if kind in (1, 2):
        return [None] * count, position + count
    values = []
    for _ in range(count):
        value, position = _value(content, position, kind)
        values.append(value)
    return values, position


def _varint(content: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _signed(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)
