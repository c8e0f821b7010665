"""Taking more workers: when training is to begin anew with them, and how it is told."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from footplate.spec import Job
from footplate.store import (
    Notes,
    Progress,
    RunRecord,
    StopRequest,
    Store,
    read_record,
    read_record_if_there,
    to_json,
)
from footplate.train.attempt import Attempt, claim_attempt
from footplate.train.growth import Growth, ask_to_resize, growing, is_resize

_SPEC = {
    "name": "toy",
    "entrypoint": "toy:train",
    "workers": {"min": 1, "max": 4},
    "limits": {"epochs": 1},
    "data": {"train": {"manifest": "a.json", "batch_size": 3}},
}


class _Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _looked(growth: Growth, clock: _Clock, there: int, seconds: float) -> int | None:
    """Look every five seconds while so many are there; the answer, once there is one."""
    for _ in range(int(seconds / 5)):
        clock.now += 5
        if (pods := growth.look(there)) is not None:
            return pods
    return None


@pytest.fixture
def clock() -> _Clock:
    """Stands at the begin of training."""
    return _Clock()


@pytest.fixture
def growth(clock: _Clock) -> Growth:
    """Of a training on two workers, of which there may be 2, 4 or 6."""
    return Growth((2, 4, 6), 2, every_s=300, clock=clock)


def test_nothing_changes_for_the_same_number(growth: Growth, clock: _Clock) -> None:
    """Neither for one more that can't be used, nor for fewer: that is a failure, if at all."""
    for there in (2, 3, 1, 0, 3):
        assert _looked(growth, clock, there, 1000) is None


def test_room_is_taken_once_it_has_been_there_for_a_minute(growth: Growth, clock: _Clock) -> None:
    """A pod that comes and goes again would cost more than it brings."""
    assert _looked(growth, clock, 2, 600) is None
    for _ in range(5):
        assert _looked(growth, clock, 4, 55) is None
        assert _looked(growth, clock, 3, 5) is None
    began = clock.now
    assert _looked(growth, clock, 5, 600) == 4
    assert clock.now - began == 65


def test_more_that_comes_meanwhile_is_waited_for(growth: Growth, clock: _Clock) -> None:
    """Two changes in a row would be one too many."""
    assert _looked(growth, clock, 2, 600) is None
    assert _looked(growth, clock, 4, 55) is None
    began = clock.now
    assert _looked(growth, clock, 6, 600) == 6
    assert clock.now - began == 65


def test_training_has_its_time_between_two_changes(growth: Growth, clock: _Clock) -> None:
    """Five minutes, however soon there is room."""
    assert _looked(growth, clock, 6, 295) is None
    assert _looked(growth, clock, 6, 5) == 6


def test_the_time_between_two_changes_is_the_users(clock: _Clock) -> None:
    """Who wants it soon does not wait a minute either."""
    growth = Growth((1, 2), 1, every_s=50, clock=clock)
    assert _looked(growth, clock, 2, 45) is None
    assert _looked(growth, clock, 2, 5) == 2
    growth = Growth((1, 2), 1, every_s=50, clock=clock)
    assert _looked(growth, clock, 1, 100) is None
    assert _looked(growth, clock, 2, 10) is None
    assert _looked(growth, clock, 2, 5) == 2


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    """One that trains."""
    store = Store(str(tmp_path / "runs"))
    record = RunRecord(uid="uid", namespace="team", name="toy", created=1.0, spec=_SPEC)
    return claim_attempt(record, Job.from_dict(_SPEC, folder=tmp_path, source="toy"), store)


def _request(attempt: Attempt) -> StopRequest | None:
    return read_record_if_there(attempt.store, attempt.paths.stop, StopRequest)


def test_the_ranks_are_asked_to_save_and_end(attempt: Attempt) -> None:
    """The same word as for a stop, of which the driver knows what follows."""
    assert not is_resize(attempt)
    ask_to_resize(attempt, 4)
    assert _request(attempt) == StopRequest(kind="resize", reason="4 of 4 workers can be had")
    assert is_resize(attempt)
    (note,) = read_record(attempt.store, attempt.paths.notes, Notes).lines
    assert note == "4 of 4 workers can be had: saves, and goes on with them"


def test_a_stop_stays_a_stop(attempt: Attempt) -> None:
    """Whoever wants the run to end is not overruled, whether before or after."""
    attempt.store.put(attempt.paths.stop, b"{}")
    ask_to_resize(attempt, 4)
    assert not is_resize(attempt)
    assert attempt.store.size(attempt.paths.notes) is None
    attempt.store.delete(attempt.paths.stop)
    ask_to_resize(attempt, 4)
    attempt.store.put(attempt.paths.stop, b"{}")
    assert not is_resize(attempt)


class _Room:
    """Counts worker pods, and lets a test wait until it has been asked."""

    def __init__(self, *there: int | Exception) -> None:
        self._there = list(there)
        self.asked = threading.Semaphore(0)

    def __call__(self) -> int:
        there = self._there.pop(0) if len(self._there) > 1 else self._there[0]
        self.asked.release()
        if isinstance(there, Exception):
            raise there
        return there


def _await_request(attempt: Attempt) -> None:
    deadline = time.monotonic() + 10
    while _request(attempt) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def at_once(attempt: Attempt, clock: _Clock) -> Growth:
    """Takes room as soon as it is seen for the second time."""
    return Growth(attempt.job.usable_workers, 1, every_s=0, clock=clock)


def test_room_is_watched_for_while_training_runs(attempt: Attempt, at_once: Growth) -> None:
    """What Ray does not tell now it may tell later."""
    room = _Room(ConnectionError("Ray does not answer"), 1, 2)
    with growing(attempt, at_once, room, look_s=0.01):
        _await_request(attempt)
    assert is_resize(attempt)


def test_what_is_nearly_done_is_left_alone(attempt: Attempt, clock: _Clock) -> None:
    """The rest takes less time than a change should be apart."""
    progress = Progress(stage="training", time=1.0, step=90, total_steps=100, eta_s=299.0)
    attempt.store.put(attempt.paths.progress, to_json(progress))
    growth, room = Growth((1, 4), 1, every_s=300, clock=clock), _Room(4)
    clock.now += 301
    growth.look(4)
    clock.now += 61
    with growing(attempt, growth, room, look_s=0.01):
        for _ in range(3):
            assert room.asked.acquire(timeout=10)
        assert _request(attempt) is None
        more = progress.model_copy(update={"eta_s": 301.0})
        attempt.store.put(attempt.paths.progress, to_json(more))
        _await_request(attempt)
    assert is_resize(attempt)
