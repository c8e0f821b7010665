"""The thread that writes checkpoints: one piece of work at a time, and never in the way."""

from __future__ import annotations

import threading

import pytest

from footplate.train.saving_thread import SavingThread


def _pass(gate: threading.Event) -> None:
    gate.wait(30)


def test_work_is_done_elsewhere_and_waited_for() -> None:
    """Whoever gives it goes on at once; waiting ends when it is done."""
    thread, gate, done = SavingThread(), threading.Event(), []

    def work() -> None:
        gate.wait(30)
        done.append(threading.current_thread().name)

    thread.begin(work)
    assert thread.is_busy
    assert not thread.wait(0.01)
    gate.set()
    assert thread.wait()
    assert done == ["saving"]
    assert not thread.is_busy
    assert thread.close(10)


def test_closing_waits_for_what_is_under_way() -> None:
    """What was begun is finished before the thread ends."""
    thread, gate, done = SavingThread(), threading.Event(), []
    thread.begin(lambda: done.append(gate.wait(30)))
    threading.Timer(0.05, gate.set).start()
    assert thread.close(30)
    assert done == [True]


def test_closing_does_not_wait_for_ever() -> None:
    """A store that does not answer holds no process up."""
    thread, gate = SavingThread(), threading.Event()
    thread.begin(lambda: _pass(gate))
    assert not thread.close(0.01)
    gate.set()
    assert thread.close(10)


def test_one_piece_of_work_at_a_time() -> None:
    """The buffers are the same for all of them."""
    thread, gate = SavingThread(), threading.Event()
    thread.begin(lambda: _pass(gate))
    with pytest.raises(AssertionError, match="one piece of work"):
        thread.begin(lambda: None)
    gate.set()
    assert thread.close(10)


def test_without_work_there_is_no_thread() -> None:
    """A rank that never saves has none."""
    before = threading.active_count()
    thread = SavingThread()
    assert thread.wait()
    assert threading.active_count() == before
    assert thread.close(0)
