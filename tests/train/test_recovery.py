"""What follows an attempt: as a table."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from footplate.store import AttemptResult, Claim, Failure
from footplate.train.recovery import (
    Decision,
    PastAttempt,
    decide,
    needs_new_driver,
    workers_that_work,
)

_LOST = "process_killed_unknown"
_HERE = "raycluster-1"


def _attempt(
    number: int,
    ended: str | None = _LOST,
    *,
    progressed: bool = True,
    has_saved: bool = True,
    cluster: str | None = _HERE,
    exit_code: int = 16,
    workers: int | None = None,
) -> PastAttempt:
    """
    An attempt in the past.

    Args:
        ended: Category of its failure, its status, or None if its driver was killed.
    """
    claim = Claim(
        attempt=number,
        token="t",  # noqa: S106 - tells claims apart, no secret
        host="h",
        pid=1,
        claimed=0.0,
        cluster=cluster,
        workers=workers,
        spec={},
    )
    return PastAttempt(
        claim=claim,
        result=_result(ended, exit_code) if ended else None,
        progressed=progressed,
        has_saved=has_saved,
    )


def _result(ended: str, exit_code: int) -> AttemptResult:
    status: Literal["succeeded", "interrupted", "failed"]
    match ended:
        case "succeeded" | "interrupted":
            return AttemptResult(status=ended, started=0.0, ended=1.0)
        case "resized":
            return AttemptResult(status="interrupted", started=0.0, ended=1.0, goes_on=True)
        case _:
            status = "failed"
    failure = Failure(
        time=1.0, error="E", category=ended, message=f"{ended} it was", exit_code=exit_code
    )
    return AttemptResult(status=status, started=0.0, ended=1.0, failure=failure)


def _decided(*past: PastAttempt) -> Decision:
    return decide(past, cluster=_HERE, now=2.0)


@pytest.mark.parametrize(
    ("ended", "has_saved", "action"),
    [
        (None, True, "go_on"),
        (None, False, "go_on"),
        ("process_killed_unknown", False, "go_on"),
        ("preemption", False, "go_on"),
        ("rendezvous_timeout", False, "go_on"),
        ("control_plane_transient", True, "go_on"),
        ("interrupted", True, "go_on"),
        ("resized", False, "go_on"),
        ("succeeded", True, "stop"),
        ("user_code", True, "stop"),
        ("nan_loss", True, "stop"),
        ("data_corruption", True, "stop"),
        ("checkpoint_corrupted", True, "stop"),
        ("spec_invalid", True, "stop"),
        ("secret_or_config_missing", True, "stop"),
        ("disk_full", True, "stop"),
        ("unknown", True, "stop"),
        ("storage_access_denied", False, "stop"),
        ("storage_access_denied", True, "go_on"),
        ("terminated_external", True, "leave"),
    ],
)
def test_how_one_attempt_ended_decides(ended: str | None, has_saved: bool, action: str) -> None:
    """
    What the machines did is repaired by another attempt, what the user did by nothing of ours.

    A store that has taken a checkpoint and then fails is away; one that never took one is wrong.
    """
    assert _decided(_attempt(1, ended, has_saved=has_saved)).action == action


def test_the_first_attempt_is_made() -> None:
    """A run without a past begins."""
    assert _decided() == Decision(action="go_on")


def test_going_on_is_at_once_after_progress() -> None:
    """What was saved since counts as success of a kind; without it there is time to recover."""
    fruitless: dict[str, Any] = {"progressed": False}
    assert _decided(_attempt(1)).pause_s == 0
    assert _decided(_attempt(1), _attempt(2, **fruitless)).pause_s == 10
    assert _decided(_attempt(1, **fruitless), _attempt(2, **fruitless)).pause_s == 20
    assert _decided(_attempt(1, **fruitless), _attempt(2)).pause_s == 0


def test_gives_up_after_three_fruitless_attempts_in_a_row() -> None:
    """The failure is that of the newest attempt, and says what each one ended by."""
    past = [
        _attempt(1),
        _attempt(2, progressed=False),
        _attempt(3, None, progressed=False),
        _attempt(4, "preemption", progressed=False, exit_code=17),
    ]
    decision = _decided(*past)
    assert decision.action == "give_up"
    assert decision.failure is not None
    assert (decision.failure.category, decision.failure.exit_code) == ("preemption", 17)
    assert decision.failure.message.splitlines() == [
        "gave up after 3 attempts in a row without a newer checkpoint:",
        "  attempt 2: process_killed_unknown it was",
        "  attempt 3: the driver was killed",
        "  attempt 4: preemption it was",
    ]
    assert decision.failure.hint


def test_gives_up_on_drivers_that_are_killed_again_and_again() -> None:
    """The operator would start one for ever; nobody but the next one can say how it ended."""
    decision = _decided(*(_attempt(number, None, progressed=False) for number in (1, 2, 3)))
    assert decision.action == "give_up"
    assert decision.failure is not None
    assert (decision.failure.category, decision.failure.exit_code) == (_LOST, 16)


def test_another_number_of_workers_is_no_failure() -> None:
    """It costs nothing of the budget, and what it has saved counts as anybody's."""
    in_vain: dict[str, Any] = {"progressed": False}
    resized = [_attempt(number, "resized", **in_vain) for number in (1, 2, 3)]
    assert _decided(*resized) == Decision(action="go_on")
    before = [_attempt(1, **in_vain), _attempt(2, **in_vain)]
    last = _attempt(4, **in_vain)
    assert _decided(*before, _attempt(3, "resized"), last).pause_s == 10
    assert _decided(*before, _attempt(3, "resized", **in_vain), last).action == "give_up"


@pytest.mark.parametrize("fruitless", [1, 2, 5])
def test_another_cluster_is_another_chance(fruitless: int) -> None:
    """
    A queue that takes the pods away and brings the run back has not tried it in vain.

    That includes attempts that a dying cluster gave up.
    """
    past = [_attempt(n, progressed=False, cluster="before") for n in range(1, fruitless + 1)]
    assert _decided(*past) == Decision(action="go_on")
    assert _decided(*past, _attempt(9, progressed=False)).pause_s == 10


def test_a_mistake_stays_one_in_another_cluster() -> None:
    """A run that ended by its user's code is not begun again by a new head."""
    assert _decided(_attempt(1, "user_code", cluster="before")).action == "stop"


@pytest.mark.parametrize(
    ("rank", "needs"),
    [
        pytest.param(1, False, id="a rank was lost"),
        pytest.param(None, True, id="the driver, or its Ray"),
    ],
)
def test_who_makes_the_next_attempt(rank: int | None, *, needs: bool) -> None:
    """A driver that was not concerned goes on; what may be broken in one ends with it."""
    failure = Failure(
        rank=rank, time=0.0, error="WorkerLostError", category=_LOST, message="", exit_code=16
    )
    failed = AttemptResult(status="failed", started=0.0, ended=1.0, failure=failure, goes_on=True)
    assert needs_new_driver(failed) is needs


def test_more_workers_need_no_new_driver() -> None:
    """An attempt that ended to go on with another number of ranks has met nothing."""
    resized = AttemptResult(status="interrupted", started=0.0, ended=1.0, goes_on=True)
    assert not needs_new_driver(resized)


@pytest.mark.parametrize(
    ("past", "most"),
    [
        ([(3, True), (4, False), (4, False)], 3),
        ([(3, True), (5, False), (4, False)], 3),
        ([(4, True), (3, True), (4, False), (4, False)], 3),
        ([(3, True), (4, False)], None),  # once is no proof
        ([(3, True), (4, False), (3, False)], None),
        ([(3, True), (4, True)], None),  # it went well with them
        ([(4, True), (3, False)], None),  # fewer is not what failed
        ([(3, True), (3, False)], None),
        ([(4, False)], None),  # nothing is known to work
        ([(None, True), (None, False)], None),
        ([], None),
    ],
)
def test_more_workers_that_come_to_nothing_are_done_without(
    past: list[tuple[int | None, bool]], most: int | None
) -> None:
    """One pod that joins and cannot train does not end what the others can do."""
    attempts = [
        _attempt(number, progressed=progressed, workers=workers)
        for number, (workers, progressed) in enumerate(past, 1)
    ]

    assert workers_that_work(attempts, cluster=_HERE) == most
    assert workers_that_work(attempts, cluster="another") is None
