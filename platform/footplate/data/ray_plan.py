"""Ray Data streams the plan, and this process gathers the rows itself, ahead of need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow

from footplate.data.columns import Columns
from footplate.data.gather import gathered
from footplate.data.plan import Portions, Range, portions_of, selections
from footplate.data.ray_blocks import blocks
from footplate.data.selection import Ids, Selection, running_sums
from footplate.data.source import DataSource, opened
from footplate.errors import DataError

__all__ = ["gathered_batches"]

# What a task takes of a CPU, as Ray counts it: it sorts keys, or looks lengths up.
_TASK_CPUS = 0.25
_BYTES_PER_SAMPLE = 8

P = TypeVar("P")  # one step of a plan


def gathered_batches(
    source: DataSource, plan: Iterator[tuple[P, Range]], portions: Portions
) -> Iterator[tuple[P, Columns]]:
    """Pair each step of a plan with its batch."""
    planned = _planned(source, plan, portions)
    return gathered(planned, opened(source).reader, pack=source.pack, bucket=source.bucket)


def _planned(
    source: DataSource, plan: Iterator[tuple[P, Range]], portions: Portions
) -> Iterator[tuple[P, Selection]]:
    """
    Pair each step with its samples.

    The first portion is worked out here: the first batch need not wait for Ray Data, which
    begins with the second one meanwhile.
    """
    first = next(portions_of(plan, portions.first_samples), None)
    if first is None:
        return
    steps, ranges = first
    yield from zip(steps, selections(opened(source).order, ranges), strict=True)
    waiting = portions_of(plan, portions.samples)
    while work := list(itertools.islice(waiting, portions.count)):
        arriving = blocks(
            [ranges for _, ranges in work],
            partial(_plan_table, source),
            cpus=_TASK_CPUS,
            block_bytes=portions.samples * _BYTES_PER_SAMPLE,
        )
        found = (selection for table in arriving for selection in _of_table(table))
        for steps, ranges in work:
            for step, where in zip(steps, ranges, strict=True):
                place, selection = next(found, (None, None))
                if place != (where.epoch, where.start) or selection is None:
                    raise DataError(f"the plan arrived out of order: {place}, not {where}")
                yield step, selection
        next(found, None)  # lets the execution come to its end


def _plan_table(source: DataSource, ranges: list[Range]) -> pyarrow.Table:
    """A row for each step: where it begins, and its samples."""
    selected = selections(opened(source).order, ranges)
    columns: dict[str, pyarrow.Array] = {
        "epoch": pyarrow.array([where.epoch for where in ranges]),
        "start": pyarrow.array([where.start for where in ranges]),
    }
    for name in ("ids", "offsets", "begins", "ends"):
        lists = [getattr(selection, name) for selection in selected]
        if lists[0] is not None:
            columns[name] = _lists(lists)
    return pyarrow.table(columns)


def _lists(arrays: list[Ids]) -> pyarrow.Array:
    bounds = running_sums(np.array([len(array) for array in arrays], dtype=np.int64))
    return pyarrow.LargeListArray.from_arrays(bounds, np.concatenate(arrays))


def _of_table(table: pyarrow.Table) -> Iterator[tuple[tuple[int, int], Selection]]:
    names = [name for name in ("ids", "offsets", "begins", "ends") if name in table.column_names]
    lists = [_arrays(table.column(name).combine_chunks()) for name in names]
    places = zip(table.column("epoch").to_pylist(), table.column("start").to_pylist(), strict=True)
    for place, *arrays in zip(places, *lists, strict=True):
        yield place, Selection(*arrays)


def _arrays(lists: pyarrow.LargeListArray) -> list[Ids]:
    bounds = lists.offsets.to_numpy()
    values = lists.values.to_numpy()
    return [values[begin:end] for begin, end in itertools.pairwise(bounds)]
