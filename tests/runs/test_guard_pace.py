"""How often the guard may act."""

from __future__ import annotations

from dataclasses import replace

from footplate.cluster import POD, RAYJOB
from footplate.runs.guard.act import Act, Deed
from footplate.runs.guard.pace import FORCED_A_MINUTE, Pace
from footplate.runs.guard.world import Reference


def _act(uid: str = "u-1", deed: Deed = Deed.REPLACE_POD) -> Act:
    return Act(
        deed=deed,
        target=Reference(POD, "team", "w-1", uid),
        rayjob=Reference(RAYJOB, "team", "digits", "u-job"),
        reason="X",
        sentence="x",
        steps=(),
    )


def test_what_was_done_is_not_done_again_at_once() -> None:
    """The guard sees what it did a moment later; other acts and objects do not wait."""
    pace = Pace()
    assert pace.is_due(_act(), 0)
    pace.done(_act(), 0)
    assert not pace.is_due(_act(), 1)
    assert pace.is_due(_act("u-2"), 1)
    assert pace.is_due(_act(deed=Deed.PAUSE), 1)
    assert pace.is_due(_act(), 30)


def test_what_failed_waits_longer_each_time() -> None:
    """It is said once, and never given up."""
    pace, now, waits = Pace(), 0.0, []
    for i in range(10):
        assert pace.is_due(_act(), now)
        assert pace.failed(_act(), now) is (i == 0)
        before = now
        while not pace.is_due(_act(), now):
            now += 1
        waits.append(now - before)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_a_success_ends_the_failures() -> None:
    """The next failure is another one, and said again."""
    pace = Pace()
    assert pace.failed(_act(), 0)
    assert not pace.failed(_act(), 10)
    pace.done(_act(), 20)
    assert pace.failed(_act(), 100)


def test_an_object_that_has_changed_is_looked_at_again_soon() -> None:
    """That is no failure: nothing is said, and no wait grows."""
    pace = Pace()
    for now in range(0, 20, 2):
        pace.overtaken(_act(), now)
        assert not pace.is_due(_act(), now)
        assert pace.is_due(_act(), now + 1)
    assert pace.failed(_act(), 30)


def test_what_must_last_is_done_only_if_it_has_lasted() -> None:
    """A break, or another reason, and it has to last from there on."""
    pace, other = Pace(), _act("u-2")
    act = replace(_act(), after_s=10)
    assert pace.ripe([act, other], 0) == [other]
    assert pace.ripe([act], 9) == []
    assert pace.ripe([act], 10) == [act]
    assert pace.ripe([], 11) == []
    assert pace.ripe([act], 12) == []
    assert pace.ripe([replace(act, sentence="y")], 30) == []
    assert pace.ripe([replace(act, sentence="y")], 40) != []


def test_force_is_limited_in_any_minute() -> None:
    """Not in each minute of the clock, at whose turn twice as many could go."""
    pace = Pace()
    for i in range(FORCED_A_MINUTE):
        assert pace.may_force(50 + i)
    assert not pace.may_force(60 + FORCED_A_MINUTE)
    assert pace.may_force(110)
    assert not pace.may_force(110.5)
    assert pace.may_force(111)
