"""What is told of the attempts of a run, by what each one left."""

from __future__ import annotations

from typing import Any

from footplate.runs.attempts import AttemptCost, Words, attempts_of
from footplate.store import AttemptResult, Claim, Failure, Notice, Progress


def _claim(number: int, start: int = 0, **values: Any) -> Claim:
    return Claim(
        attempt=number,
        token="t",  # noqa: S106 - tells claims apart, no secret
        host="h",
        pid=1,
        claimed=100.0 * number,
        starts_from=f"step-{start:08d}.a0001" if start else None,
        spec={},
        **values,
    )


def _progress(start: int, step: int, time: float) -> Progress:
    return Progress(stage="training", time=time, step=step, started_at_step=start)


def _result(status: str, ended: float, **values: Any) -> AttemptResult:
    return AttemptResult.model_validate(
        {"status": status, "started": 0.0, "ended": ended, **values}
    )


def _failure(category: str, message: str) -> Failure:
    return Failure(
        rank=1, time=0.0, error="WorkerLostError", category=category, message=message, exit_code=16
    )


def test_what_each_one_cost() -> None:
    """A lost rank, a notice in time, other workers, a killed driver, and one that nobody knows."""
    lost = _failure("process_killed_unknown", "rank 1 vanished\nand more")
    taken = _failure("preemption", "nodes of the run were taken away")
    notice = Notice(nodes={"n": 1.0}, head="h", reason="the head will be gone in 45 s", time=380.0)
    found = attempts_of(
        [_claim(1), _claim(2, 20), _claim(3, 50, workers=1), _claim(4, 60), _claim(5, 60)],
        [
            Words(
                result=_result("failed", 160.0, steps=27, failure=lost, goes_on=True),
                progress=_progress(0, 26, 158.0),
            ),
            Words(result=_result("failed", 290.0, steps=50, failure=taken, goes_on=True)),
            Words(result=_result("interrupted", 399.0, steps=60, goes_on=True)),
            Words(progress=_progress(60, 75, 450.0), notice=notice),
            Words(),
        ],
    )
    assert [(each.ending, each.first_step, each.last_step) for each in found] == [
        ("failed", 0, 27),
        ("failed", 20, 50),
        ("resized", 50, 60),
        ("killed", 60, 75),
        ("open", 60, 60),
    ]
    assert [each.cost for each in found] == [
        AttemptCost(repeated_steps=7, pause_s=40.0),
        AttemptCost(repeated_steps=0, pause_s=10.0),
        AttemptCost(repeated_steps=0, pause_s=1.0),
        AttemptCost(repeated_steps=15, pause_s=50.0),
        None,
    ]
    assert [each.reason for each in found] == [
        "rank 1 vanished",
        "nodes of the run were taken away",
        "",
        "the head will be gone in 45 s",
        "",
    ]
    assert found[0].category == "process_killed_unknown"
    assert found[2].workers == 1


def test_an_abandoned_attempt_is_nobodys_successor() -> None:
    """It has done nothing; what the one before it cost is told by the one after it."""
    found = attempts_of(
        [_claim(1), _claim(2, abandoned=True), _claim(3)],
        [Words(progress=_progress(0, 9, 150.0)), Words(), Words()],
    )
    assert [each.ending for each in found] == ["killed", "abandoned", "open"]
    assert found[0].cost == AttemptCost(repeated_steps=9, pause_s=150.0)
    assert found[1].cost is None


def test_a_run_that_was_never_claimed_has_no_history() -> None:
    """It waits in a queue."""
    assert attempts_of([], []) == []
