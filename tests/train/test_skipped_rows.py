"""Rows that could not be read are counted for the run, whichever rank or attempt met them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from footplate.checkpoints import read_manifest
from footplate.data.create import create_manifest
from footplate.data.source import DataSource, opened
from footplate.errors import DataError
from footplate.store import CheckpointName
from footplate.tracking import MetricPoint
from footplate.train.skipped_rows import SkippedRows


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    """Six row groups of five rows, of which every other one is damaged."""
    file = tmp_path / "part.parquet"
    pq.write_table(pa.table({"number": range(30)}), file, row_group_size=5)
    created = create_manifest(str(tmp_path), name="numbers")
    content = bytearray(file.read_bytes())
    for group in created.manifest.files[0].row_groups[::2]:
        content[group.offsets[0] + 2] ^= 0xFF
    file.write_bytes(content)
    return created.uri


def _rank(manifest: str, number: int, *, skip_rows: int = 12) -> tuple[SkippedRows, Any]:
    """What a rank counts, and what it reads with; a source is opened once a process."""
    source = DataSource(manifests=(manifest,), seed=number, skip_rows=skip_rows)
    return SkippedRows({"train": source}, "train"), opened(source).reader


def test_ranks_count_what_any_of_them_has_met(manifest: str) -> None:
    """Each row group once; and each is told once."""
    (one, reads_one), (other, reads_other) = (_rank(manifest, number) for number in (0, 1))
    for reader, groups in ((reads_one, (0, 2)), (reads_other, (2,))):
        for group in groups:
            reader.read(group)

    news = [one.news(), other.news()]
    for rank in (one, other):
        rank.hear(news)

    assert [len(each["train"]) for each in news] == [2, 1]
    assert [rank.metrics("train") for rank in (one, other)] == [{"data/skipped_rows": 10.0}] * 2
    assert [rank.news() for rank in (one, other)] == [{}, {}]
    (noted,) = one.noted([MetricPoint(7, 1, {"loss": 0.5})])
    assert noted == MetricPoint(7, 1, {"loss": 0.5, "data/skipped_rows": 10.0})


def test_all_ranks_end_where_it_is_too_much_for_all_together(manifest: str) -> None:
    """None of them has met more than may be replaced."""
    ranks = [_rank(manifest, number) for number in (0, 1)]
    for (_, reader), groups in zip(ranks, ((0, 2), (4,)), strict=True):
        for group in groups:
            reader.read(group)
    news = [counted.news() for counted, _ in ranks]

    for counted, _ in ranks:
        with pytest.raises(DataError, match="15 rows cannot be read, and 12 may be replaced"):
            counted.hear(news)


def test_nothing_is_counted_where_nothing_may_be_replaced(manifest: str) -> None:
    """Nor is there a metric."""
    counted, _ = _rank(manifest, 0, skip_rows=0)

    assert (counted.news(), counted.metrics("train")) == ({}, {})


def test_the_next_attempt_goes_on_counting(place: Any) -> None:
    """What was lost before the checkpoint is not forgotten, nor is what is evaluated."""
    data = {
        "train": {"skip_rows": 10, "shuffle": False},
        "valid": {"skip_rows": 5},
    }
    place.damage("train", 0)
    place.damage("valid", 1)

    ctx = place.attempt(data=data, limits={"epochs": 1})
    for batch in ctx.batches():
        ctx.step(loss=0.0)
        if ctx.step_number == 2:
            ctx.evaluate(lambda batch: {"mean": batch["number"].float().mean()}, data="valid")
        if ctx.step_number == 4:
            del batch
            break
    ctx.finish()

    lost = {name: sum(groups.values()) for name, groups in _saved(place, 4).items()}
    assert lost == {"train": 5, "valid": 5}
    assert place.metrics()[4]["data/skipped_rows"] == 5
    assert place.metrics()[2]["valid/skipped_rows"] == 5

    opened.cache_clear()  # what this process has met, another one has not
    ctx = place.attempt(data=data, limits={"epochs": 1})
    next(iter(ctx.batches()))
    ctx.step(loss=0.0)
    ctx.finish()
    assert place.metrics()[5]["data/skipped_rows"] == 5
    ctx.release()

    opened.cache_clear()
    with pytest.raises(DataError, match="5 rows cannot be read, and 4 may be replaced"):
        place.attempt(data={**data, "train": {"skip_rows": 4, "shuffle": False}})


def _saved(place: Any, step: int) -> dict[str, dict[str, int]]:
    manifest = read_manifest(place.store, place.run, CheckpointName(step, 1))
    assert manifest is not None
    return manifest.skipped_rows
