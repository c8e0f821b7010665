"""Ranks that save at every step, killed at random moments: nothing of it can be seen afterwards."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest

from footplate.checkpoints import committed
from footplate.checkpoints.integrity import verify
from training_group import training_group

# Of the training for each time that it is killed, so that some are left for the last one.
_STEPS_PER_KILL = 6
_KILLS = 4
_MANY_KILLS = 12


@pytest.mark.local
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_killed_ranks_repeat_bit_for_bit(new_place: Any, parallel: str) -> None:
    """As below, a few times."""
    _check_that_kills_change_nothing(new_place, parallel, seed=1, kills=_KILLS)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_killed_for_an_hour_repeat_bit_for_bit(
    new_place: Any, parallel: str, seed: int
) -> None:
    """As below, some hundred times in all."""
    _check_that_kills_change_nothing(new_place, parallel, seed=seed, kills=_MANY_KILLS)


def _check_that_kills_change_nothing(
    new_place: Any, parallel: str, *, seed: int, kills: int
) -> None:
    """
    Wherever the ranks are killed, every step's loss is that of a run that nothing happened to.

    Dropout, statistics of batches, and the random numbers of every rank enter the loss. They
    save at every step, so most moments are inside a save: while the state is copied, while files
    are written, between data and marker, while an old checkpoint is removed.
    """
    steps = _STEPS_PER_KILL * kills
    generator = random.Random(f"{parallel} {seed}")  # noqa: S311 - repeatable
    untouched = new_place()
    with training_group(untouched, parallel, steps) as group:
        began = time.monotonic()
        group.begin()
        assert group.ended() == ["0", "0"]
        took_s = time.monotonic() - began

    place = new_place()
    with training_group(place, parallel, steps) as group:
        for _ in range(kills):
            pids = group.begin()
            # One a moment after the other: the second learns of the first one's end, or not.
            time.sleep(generator.uniform(0.2, 0.8) * took_s * _KILLS / kills)
            for pid in generator.sample(pids, len(pids)):
                _kill(pid)
                time.sleep(generator.choice([0.0, 0.0, 0.05]))
            group.ended()
            for name in committed(place.store, place.run):
                assert verify(place.store, place.run, name) == []
        group.begin()
        assert group.ended() == ["0", "0"]

    expected = untouched.metrics()
    assert sorted(expected) == list(range(1, steps + 1))
    assert place.metrics() == expected
    assert committed(place.store, place.run)[-1].step == steps


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return
