"""Rows that could not be read are counted for the run, whichever rank or attempt met them."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.checkpoints import read_manifest
from footplate.data import source
from footplate.data.skipping import SkipBudget
from footplate.data.source import opened
from footplate.errors import DataError
from footplate.store import CheckpointName
from footplate.tracking import MetricPoint
from footplate.train.skipped_rows import SkippedRows

_DAMAGE = DataError("this one cannot be read")


def _rank(*met: str, rows: int = 12) -> SkippedRows:
    """What a rank counts that has met some row groups of five rows."""
    budget = SkipBudget(rows)
    for group in met:
        budget.spend(group, 5, _DAMAGE)
    return SkippedRows({"train": budget}, "train")


def test_ranks_count_what_any_of_them_has_met() -> None:
    """Each row group once; and each is told once."""
    one, other = _rank("a", "b"), _rank("b")

    news = [one.news(), other.news()]
    for rank in (one, other):
        rank.hear(news)

    assert [len(each["train"]) for each in news] == [2, 1]
    assert [rank.metrics("train") for rank in (one, other)] == [{"data/skipped_rows": 10.0}] * 2
    assert [rank.news() for rank in (one, other)] == [{}, {}]
    (noted,) = one.noted([MetricPoint(7, 1, {"loss": 0.5})])
    assert noted == MetricPoint(7, 1, {"loss": 0.5, "data/skipped_rows": 10.0})


def test_all_ranks_end_where_it_is_too_much_for_all_together() -> None:
    """None of them has met more than may be replaced."""
    ranks = [_rank("a", "b"), _rank("c")]
    news = [rank.news() for rank in ranks]

    for rank in ranks:
        with pytest.raises(DataError, match="15 rows cannot be read, and 12 may be replaced"):
            rank.hear(news)


def test_nothing_is_counted_where_nothing_may_be_replaced() -> None:
    """Nor is there a metric."""
    counted = SkippedRows({}, "train", {"train": {"a": 5}})

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

    _another_process()  # what this process has met, another one has not
    ctx = place.attempt(data=data, limits={"epochs": 1})
    next(iter(ctx.batches()))
    ctx.step(loss=0.0)
    ctx.finish()
    assert place.metrics()[5]["data/skipped_rows"] == 5
    ctx.release()

    _another_process()
    with pytest.raises(DataError, match="5 rows cannot be read, and 4 may be replaced"):
        place.attempt(data={**data, "train": {"skip_rows": 4, "shuffle": False}})


def _another_process() -> None:
    opened.cache_clear()
    source._skip_budget.cache_clear()


def _saved(place: Any, step: int) -> dict[str, dict[str, int]]:
    manifest = read_manifest(place.store, place.run, CheckpointName(step, 1))
    assert manifest is not None
    return manifest.skipped_rows
