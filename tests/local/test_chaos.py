"""Real runs whose processes are killed again and again; long, by ``make chaos``."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from footplate.checkpoints import committed, find_resume_point
from footplate.checkpoints.integrity import verify
from footplate.store import read_claims

if TYPE_CHECKING:
    from tests.local.conftest import Place, Running

pytestmark = pytest.mark.chaos

_SPEC = "rayjobs/textlm.toml"
_NAME = "textlm"
# More often than anyone would save, so that many kills fall into a save.
_CHANGES = ("checkpoint.every=5 steps", "checkpoint.keep.last=2")
_KILLS = int(os.environ.get("FOOTPLATE_CHAOS_KILLS", "40"))
_LONGEST_S = 25.0  # about what an attempt takes to start, and then to train for a while
_VICTIMS = ("a rank", "all ranks", "the driver", "the raylet", "the command")


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_the_run_ends_as_if_nothing_had_happened(
    place: Place, other_place: Place, seed: int
) -> None:
    """
    Ranks, driver, Ray and the command itself, by SIGKILL and SIGTERM, at seeded moments.

    After every kill each committed checkpoint is whole, and the same command goes on; in the end
    every step has the loss that it has in a run that nothing happened to, bit for bit.
    """
    moments = random.Random(seed)  # noqa: S311 - no secret
    changes = (*place.tiny, *_CHANGES)
    for _ in range(_KILLS):
        running = place.start(_SPEC, *changes)
        time.sleep(moments.uniform(0, _LONGEST_S))  # the moment is what is tried out
        _kill(running, moments)
        running.finish()
        _check_checkpoints(place)
        if _is_finished(place):
            break
    if not _is_finished(place):  # else the command would begin a new run
        finished = place.run(_SPEC, *changes)
        assert finished.exit_code == 0, finished.err
    untouched = other_place.run(_SPEC, *changes)

    assert untouched.exit_code == 0, untouched.err
    assert place.metrics(_NAME) == other_place.metrics(_NAME)


def _is_finished(place: Place) -> bool:
    return place.has_run(_NAME) and place.newest(_NAME).is_finished


def _kill(running: Running, moments: random.Random) -> None:
    victim = moments.choice(_VICTIMS)
    number = moments.choice([signal.SIGKILL, signal.SIGTERM])
    try:
        processes = _processes(running, victim, moments)
    except (psutil.NoSuchProcess, ValueError):
        return  # it has ended by itself, or has only just begun
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
    print(f"{victim}: {number.name} to {len(processes)}")


def _processes(running: Running, victim: str, moments: random.Random) -> list[psutil.Process]:
    ranks = running.ranks()
    if victim == "the command" or not ranks:
        return [psutil.Process(running.process.pid)]
    if victim == "the driver":
        return [psutil.Process(running.driver)]
    if victim == "the raylet":
        children = psutil.Process(running.driver).children(recursive=True)
        return [child for child in children if child.name() == "raylet"]
    return ranks if victim == "all ranks" else [moments.choice(ranks)]


def _check_checkpoints(place: Place) -> None:
    if not place.has_run(_NAME):
        return
    store, run = place.store, place.newest(_NAME).paths
    for name in committed(store, run):
        assert verify(store, run, name) == []
    _, rejected = find_resume_point(store, run, read_claims(store, run))
    assert rejected == []
