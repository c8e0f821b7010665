"""
Samples out of row groups: from Arrow's columns to batches of NumPy arrays, one row a sample.

A column of a row group is kept as what its samples are copied out of with least work: a matrix,
the values of all lists one after the other, or Arrow's own array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from footplate.data.manifest import SchemaField
from footplate.data.selection import Ids, running_sums
from footplate.errors import DataError

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "Column",
    "Columns",
    "Empty",
    "Lists",
    "Matrix",
    "Objects",
    "Pieces",
    "Source",
    "decode",
    "source_of",
]

Array = np.ndarray[Any, np.dtype[Any]]
Column = Array | list[Any]
Columns = dict[str, Column]
Empty = Callable[[Sequence[int], np.dtype[Any]], Array]


@dataclass(frozen=True, slots=True)
class Pieces:
    """
    Which rows of several row groups become which samples.

    Attributes:
        count: Of samples.
        rows: Of each row group, in any order, repeated or not.
        places: Which sample each of these rows becomes, likewise for each row group.
    """

    count: int
    rows: Sequence[Ids]
    places: Sequence[Ids]

    @classmethod
    def of(cls, groups: Ids, rows: Ids) -> tuple[Ids, Pieces]:
        """
        Samples by their row group and their row in it.

        Returns:
            The row groups, each once, and the pieces of each.
        """
        order = np.argsort(groups, kind="stable")
        distinct, firsts = np.unique(groups[order], return_index=True)
        places = np.split(order, firsts[1:]) if len(distinct) else []
        return distinct, cls(len(rows), [rows[each] for each in places], places)

    def __iter__(self) -> Iterator[tuple[Ids, Ids]]:
        return zip(self.rows, self.places, strict=True)


@dataclass(frozen=True, eq=False, slots=True)
class Matrix:
    """
    A column of samples of one shape; the first dimension is that of the rows.

    Attributes:
        pieces: Of the column, at least one; of one in a file, those in its pages.
        shared: What the only piece is a part of, together with those of other row groups.
        first: Its first row in there.
    """

    pieces: Sequence[Array]
    shared: Array | None = None
    first: int = 0

    @property
    def values(self) -> Array:
        """All rows; a copy, if they are in several pieces."""
        return self.pieces[0] if len(self.pieces) == 1 else np.concatenate(self.pieces)

    def joined(self) -> Matrix:
        """In memory of its own, in one piece."""
        return Matrix([np.concatenate(self.pieces)])

    def copied(self, shared: Array, first: int) -> Matrix:
        """As a part of memory that several row groups are in, from a row on."""
        row = first
        for piece in self.pieces:
            shared[row : row + len(piece)] = piece
            row += len(piece)
        return Matrix([shared[first:row]], shared, first)

    @staticmethod
    def gathered(parts: Sequence[Matrix], pieces: Pieces, empty: Empty = np.empty) -> Array:
        """The samples, in memory of their own, which ``empty`` makes."""
        first = parts[0].pieces[0]
        taken = empty((pieces.count, *first.shape[1:]), first.dtype)
        shared = parts[0].shared
        if shared is not None and all(part.shared is shared for part in parts):
            rows = np.empty(pieces.count, np.int64)
            for part, (own, places) in zip(parts, pieces, strict=True):
                rows[places] = own + part.first
            # The other modes of NumPy copy once more, so that a wrong row leaves all as it was.
            np.take(shared, rows, axis=0, out=taken, mode="clip")
            return taken
        into = _as_rows(taken)
        for part, (own, places) in zip(parts, pieces, strict=True):
            into[places] = _as_rows(part.values)[own]
        return taken


@dataclass(frozen=True, slots=True)
class Lists:
    """
    A column of lists of numbers.

    Attributes:
        values: Of all lists, one after the other.
        offsets: First value of each list, and the number of values.
    """

    values: Array
    offsets: Ids

    @property
    def lengths(self) -> Ids:
        """Values of each list."""
        return np.diff(self.offsets)

    @staticmethod
    def gathered(
        parts: Sequence[Lists],
        pieces: Pieces,
        begins: Ids | None = None,
        ends: Ids | None = None,
    ) -> tuple[Array, Ids]:
        """
        The values of the pieces, one after the other, and where each begins.

        Args:
            begins: First value of each piece in its list; None for whole lists.
            ends: One past the last.

        Raises:
            DataError: If a list is shorter than a piece of it.
        """
        starts, stops, which = _spans(parts, pieces, begins, ends)
        offsets = running_sums(stops - starts)
        taken = np.empty(offsets[-1], parts[0].values.dtype if parts else np.int64)
        spans = (starts.tolist(), stops.tolist(), which.tolist(), offsets.tolist())
        sources = [part.values for part in parts]
        for start, stop, part, offset in zip(*spans, strict=False):
            taken[offset : offset + stop - start] = sources[part][start:stop]
        return taken, offsets


def _spans(
    parts: Sequence[Lists], pieces: Pieces, begins: Ids | None, ends: Ids | None
) -> tuple[Ids, Ids, Ids]:
    """First value of each piece, one past its last, and the part they are in."""
    starts, stops, which = np.empty((3, pieces.count), np.int64)
    for number, (part, (rows, places)) in enumerate(zip(parts, pieces, strict=True)):
        starts[places] = part.offsets[rows]
        stops[places] = part.offsets[rows + 1]
        which[places] = number
    if begins is None or ends is None:
        return starts, stops, which
    if np.any(starts + ends > stops):
        raise DataError("a list is shorter than what is to be taken of it")
    return starts + begins, starts + ends, which


@dataclass(frozen=True, slots=True)
class Objects:
    """A column of anything else: its samples become Python objects."""

    values: pyarrow.Array

    def copied(self) -> Objects:
        """In memory of its own, if values are of a fixed size: others Arrow has put together."""
        import pyarrow.types as types

        if not types.is_fixed_size_binary(self.values.type) and not types.is_primitive(
            self.values.type
        ):
            return self
        return Objects(self.values.take(_arrow(np.arange(len(self.values)))))

    @staticmethod
    def gathered(parts: Sequence[Objects], pieces: Pieces) -> list[Any]:
        """The samples."""
        taken: list[Any] = [None] * pieces.count
        for part, (rows, places) in zip(parts, pieces, strict=True):
            found = part.values.take(_arrow(rows)).to_pylist()
            for place, value in zip(places.tolist(), found, strict=True):
                taken[place] = value
        return taken


Source = Matrix | Lists | Objects


def source_of(column: pyarrow.ChunkedArray, field: SchemaField) -> Source:
    """
    What samples of a column are copied out of; a view of Arrow's memory where that is possible.

    Raises:
        DataError: If there are nulls, in lists included: they would silently become NaN.
    """
    import pyarrow.types as types

    _refuse_nulls(column, field)
    if field.dtype is not None:
        return Matrix([_typed_binary(field, chunk) for chunk in _chunks(column)])
    if _is_number(column.type):
        pieces = [chunk.to_numpy(zero_copy_only=False) for chunk in _chunks(column)]
        return Matrix(pieces)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if _is_list(array.type) and _is_number(array.type.value_type):
        return _lists(array, field)
    # Lists of lists are flattened to their values, whose shape is that of all the lists.
    values, shape = array, [len(array)]
    while types.is_fixed_size_list(values.type):
        shape.append(values.type.list_size)
        values = values.flatten()
        _refuse_nulls(values, field)
    if _is_number(values.type):
        return Matrix([values.to_numpy(zero_copy_only=False).reshape(shape)])
    return Objects(array)


def decode(table: pyarrow.Table, fields: Mapping[str, SchemaField]) -> Columns:
    """
    The columns of a table by name.

    Returns:
        Numbers as arrays of shape (N,); fixed-size lists and typed fixed-size binaries as
        (N, ...); other lists of numbers as lists of N arrays; texts and all else as lists of N
        Python objects. Arrays may be read-only views of the table's memory.

    Raises:
        DataError: If a column holds nulls.
    """
    return {
        name: _column(source_of(table.column(name), fields[name])) for name in table.column_names
    }


def _column(source: Source) -> Column:
    if isinstance(source, Matrix):
        return source.values
    if isinstance(source, Lists):
        return np.split(source.values, source.offsets[1:-1]) if len(source.lengths) else []
    objects: list[Any] = source.values.to_pylist()
    return objects


def _chunks(column: pyarrow.ChunkedArray) -> list[pyarrow.Array]:
    """At least one."""
    return column.chunks or [column.combine_chunks()]


def _lists(array: pyarrow.Array, field: SchemaField) -> Lists:
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values[offsets[0] : offsets[-1]]
    _refuse_nulls(values, field)
    return Lists(values.to_numpy(zero_copy_only=False), offsets - offsets[0])


def _is_list(kind: pyarrow.DataType) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_number(kind: pyarrow.DataType) -> bool:
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _refuse_nulls(array: pyarrow.Array | pyarrow.ChunkedArray, field: SchemaField) -> None:
    if array.null_count:
        raise DataError(
            f"column {field.name} has {array.null_count} nulls",
            "Fill or remove them when the data set is prepared.",
        )


def _typed_binary(field: SchemaField, array: pyarrow.Array) -> Array:
    dtype = np.dtype(field.dtype)
    width = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    begin = array.offset * width
    samples = raw[begin : begin + len(array) * width].view(dtype)
    return samples.reshape(len(array), *((-1,) if field.shape is None else field.shape))


def _as_rows(values: Array) -> Array:
    """A matrix as a vector whose elements are whole rows: these NumPy copies at full speed."""
    count = math.prod(values.shape[1:])
    if values.ndim == 1 or not count:
        return values
    rows = np.ascontiguousarray(values).reshape(len(values), count)
    return rows.view(np.dtype((np.void, count * values.dtype.itemsize)))[:, 0]


def _arrow(rows: npt.NDArray[np.int64]) -> pyarrow.Array:
    import pyarrow

    return pyarrow.array(rows)
