"""When a store is asked again, how soon, and by how many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import GenericError, PermissionDeniedError

from footplate.errors import ObjectNotFoundError, StoreError, StoreFullError
from footplate.store import Store
from footplate.store.patience import Pace, Patience, ReadingStopped, patiently, with_patience


def _failure(reason: str, kind: type[Exception] = GenericError) -> StoreError:
    """A store's error, with what the storage library said."""
    error = StoreError("cannot read a", "Check that the store can be reached.")
    error.__cause__ = kind(reason)
    return error


_RESET = _failure("HTTP error: error sending request")
_SLOW_DOWN = _failure("Server returned non-2xx status code: 503 Service Unavailable: SlowDown")
_TOO_MANY = _failure("Server returned non-2xx status code: 429 Too Many Requests")
_REFUSED = _failure("403", PermissionDeniedError)


class _World:
    """A clock that only waiting moves, and a store that answers as it is told."""

    def __init__(self, *answers: StoreError | str) -> None:
        self.now = 0.0
        self.asked = 0
        self.waits: list[float] = []
        self._answers: Iterator[StoreError | str] = iter(answers)

    def ask(self) -> str:
        self.asked += 1
        answer = next(self._answers)
        if isinstance(answer, StoreError):
            raise answer
        return answer


class _Waiting(threading.Event):
    """Nobody sets it: waiting for it moves the clock."""

    def __init__(self, world: _World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._world.now += timeout
        self._world.waits.append(timeout)
        return super().is_set()


def _asked(
    world: _World,
    patience: Patience | None = None,
    pace: Pace | None = None,
    chance: Callable[[], float] = lambda: 1.0,
) -> str:
    return patiently(
        world.ask,
        patience or Patience(),
        pace or Pace(8),
        _Waiting(world),
        clock=lambda: world.now,
        chance=chance,
    )


def test_what_passes_is_tried_again() -> None:
    """After each failure the wait may be twice as long, up to a limit."""
    world = _World(*[_RESET] * 10, "content")

    assert _asked(world, Patience(first_wait_s=1, longest_wait_s=20)) == "content"
    assert world.waits == [1, 2, 4, 8, 16, 20, 20, 20, 20, 20]


@given(failures=st.integers(1, 10**6), chance=st.floats(0, 1))
def test_a_wait_is_drawn_from_all_of_its_span(failures: int, chance: float) -> None:
    """Those that failed together do not come back together."""
    patience = Patience(first_wait_s=0.1, longest_wait_s=20)
    longest = patience.wait_s(failures, 1.0)

    assert 0.1 <= longest <= 20
    assert patience.wait_s(failures, chance) == pytest.approx(longest * chance)


def test_a_store_that_fails_is_given_up() -> None:
    """After the time that was set, with what it said last and how often it was asked."""
    world = _World(*[_RESET] * 1000)

    with pytest.raises(StoreError, match=r"cannot read a \(\d+ tries in \d+ s\)") as caught:
        _asked(world, Patience(give_up_s=100, longest_wait_s=10))
    assert 100 <= world.now <= 110
    assert caught.value.__cause__ is _RESET
    assert caught.value.hint == _RESET.hint


@pytest.mark.parametrize("throttled", [_SLOW_DOWN, _TOO_MANY])
def test_a_store_that_throttles_is_never_given_up(throttled: StoreError) -> None:
    """It works; the only right answer is to ask for less."""
    world, pace = _World(*[throttled] * 5000, "content"), Pace(8)

    assert _asked(world, Patience(give_up_s=1), pace) == "content"
    assert world.now > 10_000
    assert pace.allowed <= 2  # the last answer was a good one


def test_throttling_between_failures_begins_the_time_anew() -> None:
    """A store that answers that it is busy is there."""
    world = _World(*[_RESET, _RESET, _RESET, _SLOW_DOWN] * 20, "content")

    assert _asked(world, Patience(give_up_s=50, longest_wait_s=10)) == "content"


@pytest.mark.parametrize("error", [ObjectNotFoundError("a"), StoreFullError("a"), _REFUSED])
def test_what_will_not_change_is_said_at_once(error: StoreError) -> None:
    """What is not there, or not allowed, is no outage."""
    world = _World(error)

    with pytest.raises(StoreError) as caught:
        _asked(world)
    assert caught.value is error
    assert (world.asked, world.waits) == (1, [])


def test_nothing_is_tried_again_for_nobody() -> None:
    """Whoever is told to stop does not ask once more."""
    world, stopped = _World(*[_RESET] * 2), threading.Event()

    def ask() -> str:
        stopped.set()
        return world.ask()

    for _ in range(2):
        with pytest.raises(ReadingStopped):
            patiently(ask, Patience(), Pace(1), stopped)
        assert world.asked == 1


def test_throttling_halves_and_success_adds() -> None:
    """Fewer at once on a refusal, at least one; slowly more when it goes well."""
    pace = Pace(16)
    for now, allowed in ((1.0, 8), (2.0, 4), (3.0, 2), (4.0, 1), (5.0, 1)):
        pace.slow_down(started=now, now=now)
        assert pace.allowed == allowed
    needed = 0
    while pace.allowed < 16:
        pace.speed_up()
        needed += 1
    assert 100 < needed < 200
    for _ in range(1000):
        pace.speed_up()
    assert pace.allowed == 16


def test_requests_that_were_refused_together_count_once() -> None:
    """All that were under way when a store began to throttle are told so."""
    pace = Pace(16)
    for started in (1.0, 1.1, 1.2):
        pace.slow_down(started=started, now=2.0)
    assert pace.allowed == 8


def test_no_more_are_made_at_once_than_allowed() -> None:
    """Whoever comes later waits for its turn, or leaves when it is not wanted any more."""
    pace, running, most = Pace(3), 0, 0
    lock, stopped = threading.Lock(), threading.Event()

    def request() -> None:
        nonlocal running, most
        for _ in range(50):
            with pace.turn(stopped):
                with lock:
                    running += 1
                    most = max(most, running)
                with lock:
                    running -= 1

    threads = [threading.Thread(target=request) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= most <= 3
    with pace.turn(stopped), pace.turn(stopped), pace.turn(stopped):
        stopped.set()
        with pytest.raises(ReadingStopped), pace.turn(stopped):
            pass


@pytest.mark.parametrize("kind", [PermissionError, IsADirectoryError, NotADirectoryError])
def test_what_a_file_system_refuses_is_said_at_once(kind: type[OSError]) -> None:
    """It will not change by asking; a disk or a network that fails may."""
    numbers = {PermissionError: 13, IsADirectoryError: 21, NotADirectoryError: 20}
    for error in (kind(numbers[kind], "no"), GenericError(f"no (os error {numbers[kind]})")):
        failure = StoreError("cannot read a")
        failure.__cause__ = error
        world = _World(failure)
        with pytest.raises(StoreError):
            _asked(world)
        assert world.asked == 1

    assert _asked(_World(_failure("input/output error", OSError), "content")) == "content"


def test_what_is_no_file_is_said_at_once(tmp_path: Path) -> None:
    """By the storage library, too."""
    (tmp_path / "file").write_bytes(b"x")
    store = Store(str(tmp_path))

    with pytest.raises(StoreError, match="cannot read"):
        with_patience(lambda: store.get("file/below"))
