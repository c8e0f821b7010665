"""The log that :mod:`recorder` writes, compared with the order that it must be in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from footplate.data.order import ShuffledOrder
from footplate.store import Store

__all__ = ["GROUP_ROWS", "ROWS", "assert_exact", "logged_pods", "logged_samples", "write_numbers"]

# Of several files: row groups of different sizes.
GROUP_ROWS = (61, 47, 100, 38, 72, 90, 55, 84, 67, 43)
ROWS = sum(GROUP_ROWS)
POOL = 3


def write_numbers(folder: Path) -> None:
    """Parquet files with a column ``number`` that counts the rows of all of them."""
    first = 0
    for part, sizes in enumerate((GROUP_ROWS[:4], GROUP_ROWS[4:])):
        schema = pa.schema([pa.field("number", pa.int64(), nullable=False)])
        with pq.ParquetWriter(folder / f"part-{part}.parquet", schema) as writer:
            for rows in sizes:
                numbers = np.arange(first, first + rows)
                writer.write_table(pa.table([numbers], schema=schema))
                first += rows


def logged_samples(log: Store) -> Iterator[list[int]]:
    """
    What each step was made of, in the order of the ranks.

    A step that was made twice counts as it was made the last time.
    """
    steps: dict[int, dict[str, Any]] = {}
    for info in log.objects(""):
        step, _, name = info.path.partition("/")
        steps.setdefault(int(step), {})[name] = json.loads(log.get(info.path))
    assert list(steps) == list(range(1, len(steps) + 1)), "a step is missing"
    for entries in steps.values():
        newest = max(entries, key=lambda name: entries[name]["time"])
        ranks = int(newest.partition("-")[0])
        yield [
            sample for rank in range(ranks) for sample in entries[f"{ranks}-{rank}.json"]["samples"]
        ]


def logged_pods(log: Store) -> tuple[set[str], set[str]]:
    """The pods that ranks were in, and those that tasks have carried samples in."""
    entries = [json.loads(log.get(info.path)) for info in log.objects("")]
    carriers = {carrier for entry in entries for carrier in entry["carriers"]}
    return {entry["pod"] for entry in entries}, carriers


def assert_exact(steps: Iterator[Sequence[int]], *, seed: int, epochs: int) -> None:
    """Every epoch's samples, once each, in the order of that epoch, however they were shared."""
    order = ShuffledOrder(GROUP_ROWS, seed=seed, pool=POOL)
    for epoch in range(epochs):
        expected = order.take(epoch, 0, ROWS).ids.tolist()
        found: list[int] = []
        while len(found) < ROWS:
            found += next(steps)
        # A last step with fewer samples than ranks is filled up from the start of the epoch.
        assert found == expected + expected[: len(found) - ROWS], f"epoch {epoch} differs"
    assert next(steps, None) is None, "there are steps after the last epoch"
