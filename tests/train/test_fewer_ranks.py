"""What a rank sees of a run that goes on without some of its workers."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.store import Progress, read_record
from footplate.train import Context

pytestmark = [
    pytest.mark.local,
    pytest.mark.filterwarnings("default"),  # Ray Data warns about itself
    pytest.mark.usefixtures("local_ray"),
]


def _numbers(ctx: Context) -> list[list[int]]:
    """The samples of each step."""
    numbers = []
    for batch in ctx.batches():
        numbers.append(batch["number"].tolist())
        ctx.step()
    return numbers


def test_one_of_two_ranks_takes_the_samples_of_both(place: Any, new_place: Any) -> None:
    """The steps are those of two ranks: as many, of the same samples; and the progress says so."""
    ctx = place.attempt(workers={"min": 1, "max": 2})
    assert (ctx.world_size, ctx.total_steps) == (1, 6)
    numbers = _numbers(ctx)
    ctx.finish()

    assert [len(step) for step in numbers] == [8] * 6
    assert numbers == _numbers(new_place().attempt(data={"train": {"batch_size": 8}}))
    progress = read_record(place.store, place.run.attempt(1).progress, Progress)
    assert progress.detail == "1 of 2 workers"
