"""What follows a notice that machines go away, and a word to stop."""

from __future__ import annotations

from footplate.store import StopRequest
from footplate.train.notice import notice_of
from footplate.train.orders import Departure, Order, stop_order

_REASON = "a worker node will be gone in 45 s"


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def _orders(save_s: float, *, until: float = 145.0) -> list[tuple[float, Order]]:
    """What is ordered when, asked every second."""
    clock = _Clock()
    departure = Departure(clock)
    orders = []
    while clock.now < until:
        if (order := departure.order(145.0, _REASON, save_s=save_s, exchange_s=1.0)) is not None:
            orders.append((clock.now, order))
            if order.ends:
                break
        clock.now += 1
    return orders


def test_saves_at_once_and_leaves_in_time() -> None:
    """What a notice leaves of the time is trained in, but for what the last save needs."""
    (first, save), (last, leave) = _orders(save_s=4.0)
    assert (first, save.ends, save.reason) == (100.0, False, "preemption")
    assert (leave.ends, leave.reason, leave.detail) == (True, "preemption", _REASON)
    assert 125.0 <= last <= 145.0 - 4.0 - 5.0


def test_without_time_for_two_saves_there_is_one() -> None:
    """It is the last, at once."""
    ((when, leave),) = _orders(save_s=30.0)
    assert (when, leave.ends) == (100.0, True)


def test_a_word_to_stop_says_why() -> None:
    """The manifest of the last checkpoint tells a user's wish from a change of workers."""
    assert stop_order(StopRequest()) == Order(ends=True, reason="stop")
    resize = stop_order(StopRequest(kind="resize", reason="4 workers can be had"))
    assert (resize.ends, resize.reason, resize.detail) == (True, "request", "4 workers can be had")


def test_a_notice_names_what_goes() -> None:
    """Only what is needed sets a deadline, and the head always is."""
    assert notice_of({}, "head", now=100.0) is None
    notice = notice_of({"a": 130.0, "b": 120.0}, "head", now=100.0)
    assert notice is not None
    assert notice.reason == "2 worker nodes will be gone in 20 s"
    assert notice.deadline({"a", "b", "c"}) == 120.0
    assert notice.deadline({"a"}) == 130.0
    assert notice.deadline({"c"}) is None
    assert notice.deadline(()) is None
    notice = notice_of({"a": 130.0, "head": 140.0}, "head", now=100.0)
    assert notice is not None
    assert notice.reason == "the head and a worker node will be gone in 30 s"
    assert notice.deadline({"c"}) == 140.0
    assert notice.deadline({"a", "c"}) == 130.0
