"""Ranks that save at every step, killed at random moments: nothing of it can be seen afterwards."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from footplate.checkpoints import committed, find_resume_point
from footplate.checkpoints.integrity import verify
from footplate.store import Claim, claim_next, read_claims

_PROCESS = Path(__file__).with_name("training_process.py")
_WORLD_SIZE = 2
# Of the training for each time that it is killed, so that some are left for the last one.
_STEPS_PER_KILL = 6
_KILLS = 4
_MANY_KILLS = 12


class Group:
    """Processes that each can begin the training of one rank, again and again."""

    def __init__(self, place: Any, processes: list[subprocess.Popen[str]]) -> None:
        self._place = place
        self._processes = processes
        self._attempts = 0

    def begin(self) -> list[int]:
        """Claim an attempt, and let all ranks train; their process ids."""
        place = self._place
        claims = read_claims(place.store, place.run)
        resume, rejected = find_resume_point(place.store, place.run, claims)
        assert not rejected
        claim = Claim(
            attempt=len(claims) + 1,
            token="token",  # noqa: S106 - tells claims apart, no secret
            host="here",
            pid=1,
            claimed=1000.0,
            starts_from=str(resume.name) if resume else None,
            spec={},
        )
        claim_next(place.store, place.run, claim)
        order = {"attempt": claim.attempt, "resume": claim.starts_from}
        return [int(self._answer(process, json.dumps(order))) for process in self._processes]

    def ended(self) -> list[str]:
        """Wait for all ranks to end; how each one has."""
        return [self._answer(process, "") for process in self._processes]

    def _answer(self, process: subprocess.Popen[str], question: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        print(question, file=process.stdin, flush=True)
        return process.stdout.readline().strip()


@contextmanager
def _group(place: Any, parallel: str, steps: int) -> Iterator[Group]:
    job = place.job(
        workers={"count": _WORLD_SIZE, "parallel": parallel},
        limits={"max_steps": steps, "epochs": 1000},
        checkpoint={"every": "1 steps"},
    )
    described = json.dumps({"spec": job.to_dict(), "store": place.store.uri})
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        processes = []
        for rank in range(_WORLD_SIZE):
            process = subprocess.Popen(
                [sys.executable, str(_PROCESS), str(rank), str(_WORLD_SIZE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            stack.enter_context(process)
            assert process.stdin is not None
            print(described, file=process.stdin, flush=True)
            processes.append(process)
        yield Group(place, processes)
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()


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
    with _group(untouched, parallel, steps) as group:
        began = time.monotonic()
        group.begin()
        assert group.ended() == ["0", "0"]
        took_s = time.monotonic() - began

    place = new_place()
    with _group(place, parallel, steps) as group:
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
