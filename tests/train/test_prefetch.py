"""Batches that a thread prepares ahead arrive as without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from footplate.errors import DataError
from footplate.train.prefetch import ahead


def _numbers(count: int, closed: threading.Event | None = None) -> Iterator[tuple[int, int]]:
    try:
        yield from ((number, number) for number in range(count))
    finally:
        if closed:
            closed.set()


def _is_running() -> bool:
    return any(thread.name == "footplate-prefetch" for thread in threading.enumerate())


def test_all_come_in_order() -> None:
    """Every step comes once, in order, with what was made of it."""
    found = list(ahead(_numbers(100), lambda number: number**2))

    assert found == [(number, number**2) for number in range(100)]
    assert not _is_running()


def test_it_works_ahead_but_not_far() -> None:
    """As many wait as was asked for, and one is being handed over: memory is bounded."""
    prepared: list[int] = []
    third = threading.Event()

    def prepare(number: int) -> int:
        prepared.append(number)
        if len(prepared) == 3:
            third.set()
        return number

    batches = ahead(_numbers(100), prepare, depth=1)
    assert next(batches) == (0, 0)
    assert third.wait(10)
    assert next(batches) == (1, 1)
    batches.close()  # type: ignore[attr-defined]

    assert len(prepared) <= 4


def test_an_error_comes_in_its_place() -> None:
    """What was prepared before is delivered before."""

    def prepare(number: int) -> int:
        if number == 3:
            raise DataError("number 3 is broken")
        return number

    batches = ahead(_numbers(10), prepare, depth=8)
    assert [next(batches)[0] for _ in range(3)] == [0, 1, 2]

    with pytest.raises(DataError, match="number 3 is broken"):
        next(batches)
    assert not _is_running()


def test_leaving_ends_the_thread() -> None:
    """Who leaves the loop leaves nothing running, and the stream is closed."""
    closed = threading.Event()
    batches = ahead(_numbers(10**9, closed), lambda number: number)
    next(batches)
    batches.close()  # type: ignore[attr-defined]

    assert closed.is_set()
    assert not _is_running()
