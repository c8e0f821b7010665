"""Work in several threads: the results in order, the first error, and no hold on the process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from footplate.data.threads import at_once


def test_results_come_in_the_order_of_the_work() -> None:
    """Whoever is faster."""
    last_is_done = threading.Event()

    def do(number: int) -> int:
        if number == 9:
            last_is_done.set()
        else:
            last_is_done.wait()
        return number * number

    assert at_once(do, range(10)) == [number * number for number in range(10)]
    assert at_once(do, []) == []


def test_work_of_any_length_is_done() -> None:
    """There are fewer threads than pieces of work, and each piece is done once."""
    done: list[int] = []

    assert at_once(done.append, range(1000)) == [None] * 1000
    assert sorted(done) == list(range(1000))


def test_the_first_error_is_raised() -> None:
    """Not the one that came first by chance; and what has not begun by then is left out."""
    begun: list[int] = []
    second_failed, is_over = threading.Event(), threading.Event()

    def do(number: int) -> None:
        begun.append(number)
        if number == 0:
            second_failed.wait()
            raise ValueError("the first")
        if number == 1:
            second_failed.set()
            raise ValueError("the second")
        is_over.wait()

    with pytest.raises(ValueError, match="the first"):
        at_once(do, range(100))
    is_over.set()
    assert len(begun) < 100


def test_the_process_does_not_wait_for_them() -> None:
    """It may end while a store lets them wait."""
    program = """
import threading
from footplate.data.threads import at_once

begun = threading.Semaphore(0)

def do(number):
    begun.release()
    threading.Event().wait()

threading.Thread(target=at_once, args=(do, [1, 2]), daemon=True).start()
begun.acquire()
begun.acquire()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
