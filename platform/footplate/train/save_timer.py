"""When to save by the clock: as rank 0 decides for all."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median

from footplate.checkpoints.interval import (
    SaveCost,
    choose_interval,
    expected_goodput,
    mean_time_to_failure,
)
from footplate.spec import Cadence
from footplate.store import SaveInterval
from footplate.train.reliability import Reliability

__all__ = ["SaveTimer"]

# Before it is known what a save costs: soon, to find out. Nor is anything known of the machines of
# a new attempt: those before may have chosen their interval for better ones.
_FIRST_S = 60.0
_REMEMBERED = 5
# The choice is worth telling again when it differs by so much from what was told last.
_NOTABLE = 0.2


class SaveTimer:
    """
    Says after how many seconds the next save is due, and finds out what is best.

    Args:
        cadence: Of the spec.
        reliability: What the past tells.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, cadence: Cadence, reliability: Reliability, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._cadence = cadence
        self._reliability = reliability
        self._clock = clock
        self._costs: deque[SaveCost] = deque(maxlen=_REMEMBERED)
        self._restart_s: float | None = None
        self._told: SaveInterval | None = None
        self._interval_s = _FIRST_S
        if reliability.interval:
            known = SaveInterval.model_validate(reliability.interval)
            self._interval_s = min(known.interval_s, _FIRST_S)

    def is_due(self, since_s: float) -> bool:
        """
        Whether to save now.

        Args:
            since_s: How long ago the last save began, or the attempt.
        """
        match self._cadence.unit:
            case "seconds":
                return since_s >= self._cadence.every
            case "auto":
                return since_s >= self._interval_s
            case _:
                return False

    def trains(self) -> None:
        """Take note of the attempt's first step: now it is known how long coming here takes."""
        if self._restart_s is None:
            self._restart_s = max(self._clock() - self._reliability.down_since, 0.0)

    def saved(self, cost: SaveCost) -> SaveInterval | None:
        """
        Take note of what a save has cost.

        Returns:
            The choice from now on, if it is new enough to be told.
        """
        self._costs.append(cost)
        if self._cadence.unit != "auto":
            return None
        choice = self._choice()
        self._interval_s = choice.interval_s
        if self._told is not None and not _differs(choice.interval_s, self._told.interval_s):
            return None
        self._told = choice
        return choice

    def _choice(self) -> SaveInterval:
        now, past = self._clock(), self._reliability
        cost = SaveCost(
            stall_s=median(each.stall_s for each in self._costs),
            slowdown_s=median(each.slowdown_s for each in self._costs),
            save_s=median(each.save_s for each in self._costs),
        )
        observed_s = past.observed_s + max(now - past.began, 0.0)
        mttf_s = mean_time_to_failure(past.failures, observed_s, pods=past.pods)
        interval_s = choose_interval(cost, mttf_s)
        restart_s = self._restart_s or 0.0
        return SaveInterval(
            interval_s=interval_s,
            stall_s=cost.stall_s,
            slowdown_s=cost.slowdown_s,
            save_s=cost.save_s,
            restart_s=restart_s,
            mttf_s=mttf_s,
            failures=past.failures,
            goodput=expected_goodput(interval_s, cost, restart_s=restart_s, mttf_s=mttf_s),
            time=now,
        )


def _differs(new_s: float, told_s: float) -> bool:
    return abs(new_s - told_s) > _NOTABLE * told_s
