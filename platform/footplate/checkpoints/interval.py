"""
How often to save; pure.

Saving costs time, and so does repeating what was not saved when something fails. Between
failures that come after M seconds in the mean, with saves that cost C seconds each, a run does
the most work if it saves every t seconds, where ::

    (1 - t/M) * exp((t + C)/M) = 1

This is the minimum of the expected wall time per second of work,
``M * exp(R/M) * (exp((t + C)/M) - 1) / t``, R being the time from a failure to the first new
step. For C much smaller than M it is Young's ``sqrt(2 * C * M)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = [
    "LONGEST_S",
    "SaveCost",
    "best_interval",
    "choose_interval",
    "expected_goodput",
    "mean_time_to_failure",
]

LONGEST_S = 600.0
"""However reliable the machines are: more than ten minutes of work are never at stake."""

# However cheap a save is: each one is some requests to the store.
_SHORTEST_S = 1.0

_DAY_S = 86_400.0
# What is believed of a run before anything is known of it: something ends it once a day, and its
# machines break as often as has been seen in large clusters, 6.5 times in 1,000 node-days.
_PRIOR_PER_DAY = 1.0
_PRIOR_PER_POD_DAY = 0.0065
# That belief weighs as much as this much time in which the run was watched.
_PRIOR_WEIGHT_S = 6 * 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveCost:
    """
    What a save costs.

    Attributes:
        stall_s: For how long training stands still.
        slowdown_s: How much later training is because it shares the machine with the writing.
        save_s: From the stall's beginning until the checkpoint counts.
    """

    stall_s: float
    slowdown_s: float
    save_s: float

    @property
    def total_s(self) -> float:
        """Training time that a save costs."""
        return self.stall_s + self.slowdown_s


def mean_time_to_failure(failures: int, observed_s: float, *, pods: int) -> float:
    """
    Seconds between failures, from what was seen of a run and what is believed beforehand.

    Args:
        failures: How often its machines have ended an attempt.
        observed_s: For how long it has been running in all.
        pods: Worker pods.
    """
    prior_per_s = (_PRIOR_PER_DAY + _PRIOR_PER_POD_DAY * pods) / _DAY_S
    believed = prior_per_s * _PRIOR_WEIGHT_S
    return (_PRIOR_WEIGHT_S + observed_s) / (believed + failures)


def best_interval(cost_s: float, mttf_s: float) -> float:
    """
    The training time between saves that wastes least.

    Args:
        cost_s: Of a save.
        mttf_s: Mean time to failure.
    """
    ratio = cost_s / mttf_s
    low, high = 0.0, 1.0
    # log(1 - x) + x + ratio falls from ratio at 0 to minus infinity at 1.
    while high - low > 1e-9:
        middle = (low + high) / 2
        if math.log1p(-middle) + middle + ratio > 0:
            low = middle
        else:
            high = middle
    return low * mttf_s


def choose_interval(cost: SaveCost, mttf_s: float) -> float:
    """
    The best interval within sane bounds.

    Never shorter than a save takes: the next one would have to wait for it.
    """
    shortest = max(_SHORTEST_S, cost.save_s)
    return max(shortest, min(best_interval(cost.total_s, mttf_s), LONGEST_S))


def expected_goodput(
    interval_s: float, cost: SaveCost, *, restart_s: float, mttf_s: float
) -> float:
    """
    The share of the wall time that goes into steps which are kept.

    Args:
        restart_s: From a failure to the first new step.
    """
    # Until a checkpoint counts, the work before it is at stake as well.
    lost = (restart_s + max(cost.save_s - cost.stall_s, 0.0)) / mttf_s
    exponent = (interval_s + cost.total_s) / mttf_s
    if lost + exponent > 500:  # nothing is ever finished
        return 0.0
    return interval_s / mttf_s / (math.exp(lost) * math.expm1(exponent))
