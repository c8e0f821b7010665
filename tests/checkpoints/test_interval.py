"""How often to save: the best interval wastes least, and stays within sane bounds."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.checkpoints.interval import (
    LONGEST_S,
    SaveCost,
    best_interval,
    choose_interval,
    expected_goodput,
    mean_time_to_failure,
)

_COSTS = st.floats(0.001, 600)
_MTTFS = st.floats(60, 1e7)


def _cost(stall_s: float, slowdown_s: float = 0.0, save_s: float | None = None) -> SaveCost:
    return SaveCost(
        stall_s=stall_s, slowdown_s=slowdown_s, save_s=stall_s if save_s is None else save_s
    )


@given(cost_s=_COSTS, mttf_s=_MTTFS, factor=st.floats(1.01, 3))
def test_no_other_interval_is_better(cost_s: float, mttf_s: float, factor: float) -> None:
    """Saving more or less often than is best gives less goodput."""
    best_s = best_interval(cost_s, mttf_s)

    def goodput(interval_s: float) -> float:
        return expected_goodput(interval_s, _cost(cost_s), restart_s=30, mttf_s=mttf_s)

    assert 0 < best_s < mttf_s
    assert goodput(best_s) >= goodput(best_s * factor)
    assert goodput(best_s) >= goodput(best_s / factor)


@given(cost_s=st.floats(0.01, 10), mttf_s=st.floats(1e6, 1e7))
def test_cheap_saves_follow_young(cost_s: float, mttf_s: float) -> None:
    """Where failures are rare compared to what a save costs it is the square root of 2 C M."""
    young_s = math.sqrt(2 * cost_s * mttf_s)
    assert best_interval(cost_s, mttf_s) == pytest.approx(young_s, rel=0.01)


@given(
    stall_s=_COSTS,
    slowdown_s=st.floats(0, 60),
    writing_s=st.floats(0, 1200),
    mttf_s=_MTTFS,
)
def test_the_choice_is_within_bounds(
    stall_s: float, slowdown_s: float, writing_s: float, mttf_s: float
) -> None:
    """Never shorter than a save takes, and else never longer than ten minutes."""
    cost = _cost(stall_s, slowdown_s, stall_s + writing_s)
    chosen_s = choose_interval(cost, mttf_s)
    assert max(1.0, cost.save_s) <= chosen_s <= max(LONGEST_S, cost.save_s)
    goodput = expected_goodput(chosen_s, cost, restart_s=60, mttf_s=mttf_s)
    assert 0 <= goodput <= chosen_s / (chosen_s + cost.total_s) + 1e-9


@given(failures=st.integers(0, 50), observed_s=st.floats(0, 1e6), pods=st.integers(1, 5000))
def test_what_is_seen_changes_what_is_believed(failures: int, observed_s: float, pods: int) -> None:
    """More failures in the same time, or more pods, mean less time to the next one."""
    mttf_s = mean_time_to_failure(failures, observed_s, pods=pods)
    assert mttf_s > mean_time_to_failure(failures + 1, observed_s, pods=pods)
    assert mttf_s > mean_time_to_failure(failures, observed_s, pods=pods + 1)
    assert mttf_s < mean_time_to_failure(failures, observed_s + 3600, pods=pods)


def test_the_prior_is_overcome() -> None:
    """A run is believed to fail once a day; one that fails every half hour shows it in a day."""
    assert mean_time_to_failure(0, 0, pods=1) == pytest.approx(86_400, rel=0.01)
    assert mean_time_to_failure(48, 86_400, pods=1) == pytest.approx(2200, rel=0.1)


def test_goodput_is_what_a_simulated_run_has() -> None:
    """The expectation is that of a machine that fails at random moments."""
    cost, restart_s, mttf_s, interval_s = _cost(2.0), 30.0, 900.0, 60.0
    generator = random.Random(0)  # noqa: S311 - repeatable
    wall_s, kept = 0.0, 0
    for _ in range(4000):
        left_s = generator.expovariate(1 / mttf_s)
        wall_s += left_s
        left_s -= restart_s
        kept += max(int(left_s // (interval_s + cost.stall_s)), 0)
    expected = expected_goodput(interval_s, cost, restart_s=restart_s, mttf_s=mttf_s)
    assert kept * interval_s / wall_s == pytest.approx(expected, rel=0.02)


def test_nothing_is_ever_finished_where_failures_come_faster_than_saves() -> None:
    """Of no use is a number, not an error."""
    assert expected_goodput(600, _cost(60), restart_s=3600, mttf_s=1) == 0
