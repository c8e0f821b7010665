"""What an attempt knows of those before it."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.errors import FootplateError, PreemptedError, UserCodeError, WorkerLostError
from footplate.store import (
    AttemptResult,
    Claim,
    Failure,
    Progress,
    SaveInterval,
    claim_next,
    to_json,
)
from footplate.train.reliability import Reliability, read_reliability, unknown_reliability

_INTERVAL = SaveInterval(
    interval_s=90.0,
    stall_s=0.1,
    slowdown_s=0.2,
    save_s=3.0,
    restart_s=40.0,
    mttf_s=9000.0,
    failures=1,
    goodput=0.98,
    time=1500.0,
)


def _claim(place: Any, number: int, claimed: float, **values: Any) -> Claim:
    claim = Claim(
        attempt=number,
        token="t",  # noqa: S106 - tells claims apart, no secret
        host="h",
        pid=1,
        claimed=claimed,
        spec={},
        **values,
    )
    return claim_next(place.store, place.run, claim)


def _end(place: Any, number: int, ended: float, error: type[FootplateError] | None) -> None:
    failure = error and Failure(
        time=ended, error=error.__name__, category=error.category, message="it went wrong"
    )
    result = AttemptResult(
        status="failed" if failure else "interrupted", started=0.0, ended=ended, failure=failure
    )
    place.store.put(place.run.attempt(number).result, to_json(result))


def _known(place: Any, claim: Claim) -> Reliability:
    return read_reliability(place.store, place.run, claim, pods=4)


def test_a_run_without_a_past_knows_nothing(place: Any) -> None:
    """It is down since it was claimed."""
    known = _known(place, _claim(place, 1, 1000.0))
    assert known == Reliability(
        failures=0, observed_s=0.0, began=1000.0, down_since=1000.0, pods=4, interval={}
    )
    assert Reliability(**known.to_dict()) == known
    assert unknown_reliability(place.job()).failures == 0


def test_losses_are_counted_and_other_ends_are_not(place: Any) -> None:
    """A killed driver is known by its last sign of life; with notice nothing is lost."""
    _claim(place, 1, 1000.0)
    _end(place, 1, 1600.0, WorkerLostError)
    _claim(place, 2, 1650.0)
    _end(place, 2, 1750.0, PreemptedError)
    _claim(place, 3, 1800.0)
    _end(place, 3, 1810.0, UserCodeError)
    _claim(place, 4, 1900.0, abandoned=True)
    _claim(place, 5, 2000.0)
    _end(place, 5, 2100.0, None)
    _claim(place, 6, 3000.0)
    progress = Progress(stage="training", time=3500.0)
    place.store.put(place.run.attempt(6).progress, to_json(progress))
    place.store.put(place.run.attempt(5).interval, to_json(_INTERVAL))

    known = _known(place, _claim(place, 7, 3560.0))
    assert (known.failures, known.observed_s) == (2, 600 + 100 + 10 + 100 + 500)
    assert known.down_since == 3500.0
    assert SaveInterval.model_validate(known.interval) == _INTERVAL


@pytest.mark.parametrize(
    ("error", "cluster", "down_since"),
    [
        (WorkerLostError, "here", 1600.0),
        (WorkerLostError, "elsewhere", 1700.0),
        (UserCodeError, "here", 1700.0),
    ],
)
def test_who_waited_for_others_was_not_recovering(
    place: Any, error: type[FootplateError], cluster: str, down_since: float
) -> None:
    """A queue, or a person who mends the code, takes as long as it takes."""
    _claim(place, 1, 1000.0, cluster=cluster)
    _end(place, 1, 1600.0, error)
    assert _known(place, _claim(place, 2, 1700.0, cluster="here")).down_since == down_since
