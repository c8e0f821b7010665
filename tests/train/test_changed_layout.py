"""A run that goes on with another layout of its state loses nothing by it."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.store import CheckpointName
from training_group import training_group

_BEFORE = 20
_AFTER = 100
# Adding in another order is all that may differ.
_TOLERANCE = 1e-5


@pytest.mark.local
@pytest.mark.parametrize(("first", "then"), [("ddp", "fsdp"), ("fsdp", "ddp")])
def test_losses_are_those_of_the_layout_before(new_place: Any, first: str, then: str) -> None:
    """A hundred steps from one checkpoint, with the state of each rank whole and shared out."""
    place = new_place()
    with training_group(place, first, _BEFORE, every=_BEFORE) as group:
        group.begin()
        assert group.ended() == ["0", "0"]
    same = _losses(place, first)
    other = _losses(place, then)

    assert list(same) == list(range(_BEFORE + 1, _BEFORE + _AFTER + 1))
    assert other == pytest.approx(same, rel=_TOLERANCE)


def _losses(place: Any, parallel: str) -> dict[int, float]:
    """Of the steps after the checkpoint."""
    start = CheckpointName(step=_BEFORE, attempt=1)
    with training_group(place, parallel, _BEFORE + _AFTER, every=_BEFORE + _AFTER) as group:
        group.begin(start)
        assert group.ended() == ["0", "0"]
    return {step: m["loss"] for step, m in place.metrics().items() if step > _BEFORE}
