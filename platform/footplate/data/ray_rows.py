"""Ray Data's tasks carry the rows: they gather them, and apply what is to be applied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow

from footplate.data.columns import Columns, decode
from footplate.data.gather import gathered_at_once
from footplate.data.manifest import SchemaField
from footplate.data.order import mixed_key, mixed_keys
from footplate.data.plan import Portions, Range, portions_of, selections
from footplate.data.ray_blocks import blocks
from footplate.data.schema import fields_of
from footplate.data.selection import Ids, Selection
from footplate.data.source import DataSource, SampleKeys, opened
from footplate.data.tables import table_of
from footplate.errors import DataError, UserCodeError
from footplate.spec import Bucket

__all__ = ["carried_batches"]

# What a task takes of a CPU, as Ray counts it.
_TASK_CPUS = 0.5
# Of samples that a task carries. It reads all row groups that they are in, and consecutive steps
# take theirs from the same pool: what is small against a pool reads all of that for a part of it.
_TASK_BYTES = 64 << 20
_PLACE = "__footplate_place__"

P = TypeVar("P")  # one step of a plan


def carried_batches(
    source: DataSource, plan: Iterator[tuple[P, Range]], portions: Portions
) -> Iterator[tuple[P, Columns]]:
    """Pair each step of a plan with its batch, which this process may not write to."""
    block_samples = min(max(_TASK_BYTES // opened(source).sample_size, 1), portions.samples)
    waiting = portions_of(plan, block_samples)
    while work := list(itertools.islice(waiting, portions.count)):
        arriving = blocks(
            [ranges for _, ranges in work],
            partial(_rows, source),
            cpus=_TASK_CPUS,
            block_bytes=_TASK_BYTES,
        )
        planned = (step for steps in work for step in zip(*steps, strict=True))
        for step, columns in _cut(planned, arriving):
            yield step, _trimmed(columns, source.bucket)


def _cut(
    planned: Iterator[tuple[P, Range]], arriving: Iterator[pyarrow.Table]
) -> Iterator[tuple[P, Columns]]:
    """
    Cut what arrives into steps.

    Ray Data may split what a task returns into several blocks, if it is large.
    """
    arrived = pyarrow.table({_PLACE: pyarrow.array([], pyarrow.int64())})
    for step, where in planned:
        count = where.stop - where.start
        while len(arrived) < count and (block := next(arriving, None)) is not None:
            arrived = pyarrow.concat_tables([arrived, block]) if len(arrived) else block
        rows = arrived.slice(0, count)
        _check(rows, where)
        yield step, decode(rows.drop_columns([_PLACE]), _fields(rows.schema))
        arrived = arrived.slice(count)
    next(arriving, None)  # lets the execution come to its end


def _fields(schema: pyarrow.Schema) -> dict[str, SchemaField]:
    """Of what arrives, which the user's functions may have changed, from task to task even."""
    return {field.name: field for field in fields_of(schema, "what the tasks returned")}


def _trimmed(columns: Columns, bucket: Bucket | None) -> Columns:
    """Padded to the longest of the batch: a task pads to the longest of all that it carries."""
    if bucket is None:
        return columns
    return {
        name: column[:, : np.max(columns[f"{name}_lengths"])]
        if f"{name}_lengths" in columns and isinstance(column, np.ndarray) and column.ndim == 2
        else column
        for name, column in columns.items()
    }


def _check(rows: pyarrow.Table, where: Range) -> None:
    places = rows.column(_PLACE).to_numpy()
    if not np.array_equal(places, np.arange(where.start, where.stop)):
        raise DataError(
            f"samples arrived out of order: {len(places)} of them, not those from {where.start} "
            f"to {where.stop} of epoch {where.epoch}, or not in their order"
        )


def _rows(source: DataSource, ranges: list[Range]) -> pyarrow.Table:
    """The samples of consecutive steps, and the place of each in its epoch."""
    data = opened(source)
    selection = Selection.concatenated(selections(data.order, ranges))
    columns = gathered_at_once(selection, data.reader, pack=source.pack, bucket=source.bucket)
    places = np.concatenate([np.arange(where.start, where.stop) for where in ranges])
    if source.transform is not None:
        columns = source.transform(columns, _keys(source.seed, ranges, places))
    return _table(columns).append_column(_PLACE, pyarrow.array(places))


def _table(columns: Columns) -> pyarrow.Table:
    # Nothing but empty lists: Arrow has no values of no bytes. The padding is cut off again.
    kept = {
        name: np.pad(column, ((0, 0), (0, 1)))
        if isinstance(column, np.ndarray) and column.ndim == 2 and not column.shape[1]
        else column
        for name, column in columns.items()
    }
    try:
        return table_of(kept)
    except DataError as error:
        raise UserCodeError(
            f"what the functions of map returned cannot be sent to the ranks: {error.message}",
            error.hint,
        ) from error


def _keys(seed: int, ranges: list[Range], places: Ids) -> SampleKeys:
    of_epochs = np.array([mixed_key(mixed_key(seed) ^ where.epoch) for where in ranges], np.uint64)
    lengths = [where.stop - where.start for where in ranges]
    return mixed_keys(places.astype(np.uint64) ^ np.repeat(of_epochs, lengths))
