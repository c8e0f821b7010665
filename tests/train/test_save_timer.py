"""When the clock says to save, and how that is found out."""

from __future__ import annotations

import pytest

from footplate.checkpoints.interval import SaveCost, choose_interval, mean_time_to_failure
from footplate.spec.cadence import parse_save_cadence
from footplate.store import SaveInterval
from footplate.train.pace import Pace
from footplate.train.reliability import Reliability
from footplate.train.save_timer import SaveTimer

_CHEAP = SaveCost(stall_s=0.1, slowdown_s=0.1, save_s=2.0)
_DEAR = SaveCost(stall_s=3.0, slowdown_s=0.0, save_s=9.0)


class _Clock:
    now = 5000.0

    def __call__(self) -> float:
        return self.now


def _reliability(failures: int = 2, interval: SaveInterval | None = None) -> Reliability:
    return Reliability(
        failures=failures,
        observed_s=7200.0,
        began=4990.0,
        down_since=4960.0,
        pods=4,
        interval=interval.model_dump() if interval else {},
    )


def _timer(every: str, reliability: Reliability | None = None) -> SaveTimer:
    return SaveTimer(parse_save_cadence(every), reliability or _reliability(), clock=_Clock())


@pytest.mark.parametrize(("every", "due"), [("30s", True), ("1m", False), ("10 steps", False)])
def test_a_fixed_time_is_kept(every: str, due: bool) -> None:
    """Whatever a save costs; and steps are not counted here."""
    timer = _timer(every)
    assert timer.saved(_DEAR) is None
    assert timer.is_due(40.0) is due


def test_the_first_save_comes_soon() -> None:
    """Before a save was made it is not known what one costs."""
    timer = _timer("auto")
    assert not timer.is_due(59.0)
    assert timer.is_due(60.0)


def test_the_best_interval_is_chosen_and_told() -> None:
    """From what saves cost and how often the run fails; told again if it changes much."""
    timer = _timer("auto")
    timer.trains()
    told = timer.saved(_CHEAP)
    assert told is not None
    mttf_s = mean_time_to_failure(2, 7210.0, pods=4)
    assert told.interval_s == pytest.approx(choose_interval(_CHEAP, mttf_s))
    assert told.restart_s == 40.0
    assert told.mttf_s == pytest.approx(mttf_s)
    assert told.failures == 2
    assert 0.9 < told.goodput < 1
    assert timer.is_due(told.interval_s)
    assert not timer.is_due(told.interval_s * 0.99)
    assert timer.saved(_CHEAP) is None
    news = [timer.saved(_DEAR) for _ in range(5)]
    assert news.count(None) < len(news)
    assert timer.is_due(600.0)
    assert not timer.is_due(told.interval_s)


@pytest.mark.parametrize(("chosen_s", "first_s"), [(20.0, 20.0), (600.0, 60.0)])
def test_what_an_earlier_attempt_found_out_is_used(chosen_s: float, first_s: float) -> None:
    """
    It begins where the one before had got to, but never later than one that knows nothing.

    Machines that begin to fail after weeks would else end attempt after attempt before its first
    save, until the run is given up.
    """
    told = _timer("auto").saved(_CHEAP)
    assert told is not None
    known = told.model_copy(update={"interval_s": chosen_s})
    timer = _timer("auto", _reliability(interval=known))
    assert timer.is_due(first_s)
    assert not timer.is_due(first_s - 1)


def test_slowdown_is_what_steps_lose_while_something_is_written() -> None:
    """Medians are compared, and what was interrupted is left out."""
    clock = _Clock()
    pace = Pace(clock)

    def steps(count: int, seconds: float, *, is_writing: bool) -> None:
        for _ in range(count):
            clock.now += seconds
            pace.step(is_writing=is_writing)

    steps(20, 1.0, is_writing=False)
    assert pace.slowdown == 0
    steps(20, 1.25, is_writing=True)
    assert pace.slowdown == pytest.approx(0.2)
    pace.interrupt()
    clock.now += 1000
    pace.step(is_writing=False)
    assert pace.slowdown == pytest.approx(0.2)
    steps(40, 0.5, is_writing=True)
    assert pace.slowdown == 0
