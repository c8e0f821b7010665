"""Waiting no longer than one cares to."""

from __future__ import annotations

import threading

import pytest

from footplate.errors import StoreError
from footplate.runs.patience import within


def test_what_answers_is_waited_for() -> None:
    """It has been done when this returns."""
    done: list[int] = []
    assert within(10, lambda: done.append(1))
    assert done == [1]


def test_what_does_not_answer_is_left_behind() -> None:
    """Nobody waits for ever for a store that is gone."""
    never = threading.Event()
    try:
        assert not within(0.05, never.wait)
    finally:
        never.set()


def test_an_error_is_raised_where_somebody_waits() -> None:
    """A refusal is no silence."""

    def refuse() -> None:
        raise StoreError("no")

    with pytest.raises(StoreError, match="no"):
        within(10, refuse)
