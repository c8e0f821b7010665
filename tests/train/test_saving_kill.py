"""Ranks that save at every step, killed at random moments: nothing of it can be seen afterwards."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import psutil
import pytest

from footplate.checkpoints import committed
from footplate.checkpoints.integrity import verify
from footplate.store import Store
from s3_relay import S3Relay
from testbed import wait_until
from training_group import training_group

# Of the training for each time that it is killed, so that some are left for the last one.
_STEPS_PER_KILL = 6
_KILLS = 4
_MANY_KILLS = 12
# Numbers of four bytes that are saved besides: some requests for each rank's share of them.
_BALLAST = 5_000_000
_LATENCY_S = 0.02


@pytest.mark.local
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_killed_ranks_repeat_bit_for_bit(new_place: Any, parallel: str) -> None:
    """As below, a few times."""
    _check_that_kills_change_nothing(new_place, parallel, seed=1, kills=_KILLS)


@pytest.mark.cluster
def test_ranks_killed_while_they_upload_repeat_bit_for_bit(
    new_place: Any, bucket: str, relay: S3Relay
) -> None:
    """As below, a few times, with checkpoints in a bucket, each of many requests."""
    _check_that_kills_during_uploads_change_nothing(
        new_place, bucket, relay, "ddp", seed=1, kills=_KILLS
    )


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_killed_for_an_hour_repeat_bit_for_bit(
    new_place: Any, parallel: str, seed: int
) -> None:
    """As below, some hundred times in all."""
    _check_that_kills_change_nothing(new_place, parallel, seed=seed, kills=_MANY_KILLS)


@pytest.mark.chaos
@pytest.mark.cluster
@pytest.mark.parametrize("seed", range(2, 4))
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_killed_while_they_upload_again_and_again_repeat_bit_for_bit(
    new_place: Any, bucket: str, relay: S3Relay, parallel: str, seed: int
) -> None:
    """As below, some dozen times; and some of the moments were inside an upload."""
    _check_that_kills_during_uploads_change_nothing(
        new_place, bucket, relay, parallel, seed=seed, kills=_MANY_KILLS
    )
    begun = [each for each in relay.exchanges if each.query.startswith("uploads")]
    completed = [
        each
        for each in relay.exchanges
        if each.method == "POST" and each.query.startswith("uploadId=")
    ]
    assert len(completed) < len(begun)


def _check_that_kills_during_uploads_change_nothing(
    new_place: Any, bucket: str, relay: S3Relay, parallel: str, *, seed: int, kills: int
) -> None:
    """Requests take as long as those over a network, and each file has several parts."""
    relay.latency_s = _LATENCY_S
    numbers = itertools.count()

    def new_place_in_bucket() -> Any:
        store = Store(f"{bucket}/{next(numbers)}", endpoint=relay.endpoint)
        return new_place(store, params={"ballast": _BALLAST})

    _check_that_kills_change_nothing(new_place_in_bucket, parallel, seed=seed, kills=kills)


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
        group.begin()
        began = time.monotonic()
        wait_until(lambda: committed(untouched.store, untouched.run), 60, "a checkpoint")
        beginning_s = time.monotonic() - began
        assert group.ended() == ["0", "0"]
        took_s = time.monotonic() - began

    # Some kills come before the first step, the others after as many as make up the training.
    longest_s = beginning_s + 1.5 * (took_s - beginning_s) / kills
    place, struck = new_place(), 0
    with training_group(place, parallel, steps) as group:
        for _ in range(kills):
            pids = group.begin()
            # One a moment after the other: the second learns of the first one's end, or not.
            time.sleep(generator.uniform(0.0, longest_s))
            for pid in generator.sample(pids, len(pids)):
                struck += _kill(pid)
                time.sleep(generator.choice([0.0, 0.0, 0.05]))
            group.ended()
            for name in committed(place.store, place.run):
                assert verify(place.store, place.run, name) == []
        group.begin()
        assert group.ended() == ["0", "0"]

    assert struck >= kills
    expected = untouched.metrics()
    assert sorted(expected) == list(range(1, steps + 1))
    assert place.metrics() == expected
    assert committed(place.store, place.run)[-1].step == steps


def _kill(pid: int) -> bool:
    """Whether it lived."""
    process = psutil.Process(pid)  # a zombie until it is waited for
    if process.status() == psutil.STATUS_ZOMBIE:
        return False
    process.kill()
    return True
