"""Ray Data's tasks carry the rows: they gather them, and apply what is to be applied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow

from footplate.data.columns import Column, Columns, Lists, Matrix, Source, source_of
from footplate.data.gather import gathered_at_once
from footplate.data.order import mixed_key, mixed_keys
from footplate.data.plan import TASK_CPUS, Portions, Range, joined, portions_of, selections
from footplate.data.ray_blocks import blocks
from footplate.data.schema import fields_of
from footplate.data.selection import Ids, Selection
from footplate.data.shared_folder import used_if_there
from footplate.data.source import DataSource, SampleKeys, opened
from footplate.data.tables import table_of
from footplate.data.widths import narrowed, shapes_in, side_by_side
from footplate.errors import DataError, UserCodeError

__all__ = ["carried_batches"]

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
            [joined(ranges) if source.bucket is None else ranges for _, ranges in work],
            partial(_rows, source),
            cpus=TASK_CPUS,
            block_bytes=_TASK_BYTES,
        )
        yield from _cut(work, arriving)


def _cut(
    work: Sequence[tuple[list[P], list[Range]]], arriving: Iterator[pyarrow.Table]
) -> Iterator[tuple[P, Columns]]:
    """Cut what arrives into steps."""
    table = pyarrow.table({_PLACE: pyarrow.array([], pyarrow.int64())})
    for steps, ranges in work:
        count = sum(where.stop - where.start for where in ranges)
        table = _whole(table.slice(0, 0), arriving, count)
        yield from zip(steps, _batches(table, ranges), strict=True)
    next(arriving, None)  # lets the execution come to its end


def _whole(table: pyarrow.Table, arriving: Iterator[pyarrow.Table], count: int) -> pyarrow.Table:
    """
    What a task returned, in one piece: Ray Data may have split it, if it is large.

    Raises:
        DataError: If it is more or less than the task was to return.
    """
    while len(table) < count and (block := next(arriving, None)) is not None:
        table = pyarrow.concat_tables([table, block]) if len(table) else block
    if len(table) != count:
        raise DataError(f"a task returned {len(table)} samples, not {count}")
    return table.combine_chunks()  # copies nothing of one block


def _batches(table: pyarrow.Table, ranges: Sequence[Range]) -> Iterator[Columns]:
    """The batches of consecutive steps. What can be done once for all of them is: they are many."""
    places = table.column(_PLACE).to_numpy()
    told = shapes_in(table.column_names)
    samples = table.drop_columns([_PLACE])
    # The user's functions may have changed what the columns are, from task to task even.
    fields = fields_of(samples.schema, "what the tasks returned")
    sources = {field.name: source_of(samples.column(field.name), field) for field in fields}
    shapes = {name: sources.pop(column) for name, column in told.items()}
    start = 0
    for where in ranges:
        stop = start + where.stop - where.start
        _check(places[start:stop], where)
        batch = {name: _part(source, start, stop) for name, source in sources.items()}
        for name, source in shapes.items():
            batch[name] = narrowed(batch[name], np.asarray(_part(source, start, stop)))
        yield batch
        start = stop


def _part(source: Source, start: int, stop: int) -> Column:
    """Some consecutive samples of a column."""
    if isinstance(source, Matrix):
        return source.values[start:stop]
    if isinstance(source, Lists):
        if start == stop:
            return []
        offsets = source.offsets[start : stop + 1]
        values = source.values[offsets[0] : offsets[-1]]
        return np.split(values, offsets[1:-1] - offsets[0])
    objects: list[Any] = source.values.slice(start, stop - start).to_pylist()
    return objects


def _check(places: Ids, where: Range) -> None:
    if not np.array_equal(places, np.arange(where.start, where.stop)):
        raise DataError(
            f"samples arrived out of order: {len(places)} of them, not those from {where.start} "
            f"to {where.stop} of epoch {where.epoch}, or not in their order"
        )


def _rows(source: DataSource, ranges: list[Range]) -> pyarrow.Table:
    """
    The samples of consecutive steps, and the place of each in its epoch.

    In a bucket each step is as wide as its own longest sample, and the user's functions see it by
    itself: what they make of it does not depend on what else a task carries.
    """
    filled = [where for where in ranges if where.stop > where.start] or ranges[:1]
    parts = [filled] if source.bucket is None else [[where] for where in filled]
    steps = [
        _transformed(source, part, columns)
        for part, columns in zip(parts, _gathered(source, parts), strict=True)
    ]
    places = np.concatenate([np.arange(where.start, where.stop) for where in ranges])
    return _table(steps).append_column(_PLACE, pyarrow.array(places))


def _transformed(source: DataSource, ranges: Sequence[Range], columns: Columns) -> Columns:
    if source.transform is None:
        return columns
    return source.transform(columns, _keys(source.seed, ranges))


def _gathered(source: DataSource, parts: Sequence[Sequence[Range]]) -> list[Columns]:
    """The samples of each part, which are several ranges."""
    with _kept_on_node(source) as kept:
        data = opened(kept)
        chosen = [Selection.concatenated(selections(data.order, part)) for part in parts]
        return gathered_at_once(chosen, data.reader, pack=source.pack, bucket=source.bucket)


@contextmanager
def _kept_on_node(source: DataSource) -> Iterator[DataSource]:
    """
    The source with its cache, if that is there on the node of this task.

    One that goes with its last user goes with the ranks of the node: a process of Ray's would
    have no end at which to remove it.
    """
    if source.cache is None or not source.cache.is_temporary:
        yield source
        return
    with used_if_there(Path(source.cache.folder)) as is_there:
        yield source if is_there else replace(source, cache=None)


def _table(steps: Sequence[Columns]) -> pyarrow.Table:
    try:
        return table_of(side_by_side(steps))
    except (DataError, ValueError) as error:
        message, hint = (*error.args, "")[:2]
        raise UserCodeError(
            f"what the functions of map returned cannot be sent to the ranks: {message}", hint
        ) from error


def _keys(seed: int, ranges: Sequence[Range]) -> SampleKeys:
    return np.concatenate(
        [
            mixed_keys(
                np.arange(where.start, where.stop, dtype=np.uint64)
                ^ np.uint64(mixed_key(mixed_key(seed) ^ where.epoch))
            )
            for where in ranges
        ]
    )
