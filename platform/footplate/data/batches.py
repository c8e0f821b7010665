"""Batches of several steps at once, out of the row groups that their samples are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from footplate.data.columns import (
    Column,
    Columns,
    Empty,
    Lists,
    Matrix,
    Objects,
    Pieces,
    Source,
    source_of,
)
from footplate.data.manifest import SchemaField
from footplate.data.selection import Ids, Selection, running_sums
from footplate.errors import DataError
from footplate.spec import Bucket, Pack

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Assembly", "Sources"]

Sources = Mapping[str, Source]
"""The columns of a row group."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Assembly:
    """
    What batches are made of.

    Attributes:
        fields: The columns of the data set by name.
        pack: Lists of numbers become arrays (samples, length), with ``<column>_segments``, which
            says of each value which document of its sequence it is of, from 0. Several columns
            are packed alike: their lists must be as long as those of the packed column.
        bucket: Lists of numbers become arrays (samples, longest of the batch), filled up at the
            end, with ``<column>_lengths``.
        empty: Makes the memory of what is numbers of one shape.
    """

    fields: Mapping[str, SchemaField]
    pack: Pack | None = None
    bucket: Bucket | None = None
    empty: Empty = np.empty

    def sources(self, table: pyarrow.Table) -> Sources:
        """
        The columns of a row group, to take samples from.

        Raises:
            DataError: If a column holds nulls, or is no list of numbers and is to be packed.
        """
        found = {
            name: source_of(table.column(name), self.fields[name]) for name in table.column_names
        }
        for name, source in found.items():
            if self.pack is not None and not isinstance(source, Lists):
                raise DataError(
                    f"column {name} cannot be packed: it has no lists of numbers",
                    f'Name the columns to read: columns = ["{self.pack.column}"].',
                )
        return found

    def batches(
        self, selections: Sequence[Selection], parts: Sequence[Sources], pieces: Pieces
    ) -> list[Columns]:
        """
        The batches of consecutive steps: views of memory that all of them share, each of its own.

        Args:
            selections: The samples of each step.
            parts: The row groups, at least one, even where there is no sample.
            pieces: Of these row groups, for all steps together.
        """
        chunk = Selection.concatenated(selections)
        bounds = running_sums(np.array([len(each) for each in selections], dtype=np.int64))
        batches: list[Columns] = [{} for _ in selections]
        for name in parts[0]:
            columns = self._columns(name, [part[name] for part in parts], pieces, chunk, bounds)
            for column_name, steps in columns.items():
                for batch, step in zip(batches, steps, strict=True):
                    batch[column_name] = step
        return batches

    def _columns(
        self, name: str, parts: Sequence[Any], pieces: Pieces, chunk: Selection, bounds: Ids
    ) -> Mapping[str, list[Column]]:
        """What becomes of a column, cut into steps."""
        if isinstance(parts[0], Matrix):
            return {name: _cut(Matrix.gathered(parts, pieces, self.empty), bounds)}
        if isinstance(parts[0], Objects):
            return {name: _cut(Objects.gathered(parts, pieces), bounds)}
        values, offsets = Lists.gathered(parts, pieces, chunk.begins, chunk.ends)
        if self.pack is not None:
            return self._packed(name, values, offsets, chunk, bounds)
        samples = [
            (values[offsets[start] : offsets[stop]], np.diff(offsets[start : stop + 1]))
            for start, stop in _spans(bounds)
        ]
        if self.bucket is None:
            return {
                name: [np.split(each, np.cumsum(n)[:-1]) if len(n) else [] for each, n in samples]
            }
        pad = self.bucket.pad
        return {
            name: [_padded(each, lengths, pad) for each, lengths in samples],
            f"{name}_lengths": [lengths for _, lengths in samples],
        }

    def _packed(
        self, name: str, values: Array, offsets: Ids, chunk: Selection, bounds: Ids
    ) -> Mapping[str, list[Column]]:
        assert self.pack is not None
        assert chunk.offsets is not None
        shape = len(chunk), self.pack.length
        packed = {name: _cut(values.reshape(shape), bounds)}
        if name == self.pack.column:
            firsts = np.repeat(chunk.offsets[:-1], np.diff(chunk.offsets))
            numbers = (np.arange(len(chunk.ids)) - firsts).astype(np.int32)
            segments = np.repeat(numbers, np.diff(offsets)).reshape(shape)
            packed[f"{name}_segments"] = _cut(segments, bounds)
        return packed


def _spans(bounds: Ids) -> list[tuple[int, int]]:
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def _cut(column: Any, bounds: Ids) -> list[Any]:
    return [column[start:stop] for start, stop in _spans(bounds)]


def _padded(values: Array, lengths: Ids, pad: int) -> Array:
    longest = int(lengths.max(initial=0))
    batch = np.full((len(lengths), longest), pad, values.dtype)
    batch[np.arange(longest) < lengths[:, np.newaxis]] = values
    return batch
