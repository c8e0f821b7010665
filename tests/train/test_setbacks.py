"""When failing to save ends training: as a table, without waiting."""

from __future__ import annotations

import pytest

from footplate.errors import (
    CheckpointError,
    FencedError,
    FootplateError,
    StoreError,
    StoreFullError,
    TrainingError,
)
from footplate.train.setbacks import PAUSES_S, Setbacks


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _setbacks(clock: _Clock, *, has_saved: bool = True) -> Setbacks:
    return Setbacks(has_saved=has_saved, clock=clock)


@pytest.mark.parametrize(
    "error",
    [StoreError("away"), StoreFullError("full"), CheckpointError("a file went away")],
)
def test_the_third_failure_in_a_row_is_final(error: FootplateError) -> None:
    """The first two are tried again, the second after a longer while."""
    clock = _Clock()
    setbacks = _setbacks(clock)
    for number, pause_s in enumerate(PAUSES_S, 1):
        assert not setbacks.failed(error, refused=False)
        assert setbacks.pause_s == pause_s
        assert setbacks.outlook == f"it is tried again in {pause_s:g} s (failure {number} of 3)"
        assert not setbacks.is_retry_due
        clock.now += pause_s
        assert setbacks.is_retry_due
    assert setbacks.failed(error, refused=False)
    assert setbacks.outlook == "training ends for it"


def test_a_success_is_a_new_beginning() -> None:
    """Only failures in a row count, and after a success nothing is tried again."""
    clock = _Clock()
    setbacks = _setbacks(clock)
    for _ in range(5):
        assert not setbacks.failed(StoreError("away"), refused=False)
        assert not setbacks.failed(StoreError("away"), refused=False)
        setbacks.saved()
        assert (setbacks.pause_s, setbacks.is_retry_due) == (None, False)


def test_a_refusal_is_a_wrong_setting_until_something_was_saved() -> None:
    """A store that never took a checkpoint and does not allow it will not change its mind."""
    clock = _Clock()
    assert _setbacks(clock, has_saved=False).failed(StoreError("forbidden"), refused=True)
    assert not _setbacks(clock).failed(StoreError("forbidden"), refused=True)
    first = _setbacks(clock, has_saved=False)
    first.saved()
    assert not first.failed(StoreError("forbidden"), refused=True)


@pytest.mark.parametrize(
    "error",
    [FencedError("newer"), TrainingError("broken"), RuntimeError("gone")],
)
def test_what_is_no_fault_of_the_store_is_final_at_once(error: Exception) -> None:
    """Trying again would not help, or is not this attempt's business any more."""
    assert _setbacks(_Clock()).failed(error, refused=False)
