"""What running the same file again means."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.runs import PastRun, decide, relevant
from footplate.spec import merged
from footplate.store import AttemptResult, Claim, Failure, RunRecord

SPEC: dict[str, Any] = {
    "name": "digits",
    "entrypoint": "digits:train",
    "workers": {"count": 2},
    "limits": {"epochs": 3},
    "params": {"lr": 0.1},
}
LONGER = {"limits": {"epochs": 9}}
FASTER = {"params": {"lr": 0.2}}
FAILED = Failure(time=1.0, error="ValueError", category="user_code", message="x")


def _past(status: str | None, *, claimed: bool = True) -> PastRun:
    """A run whose newest attempt ended so; None for one that was killed."""
    record = RunRecord(uid="uid-1", namespace="local", name="digits", created=1.0, spec={})
    claim = Claim(attempt=1, token=str(status), host="h", pid=1, claimed=1.0, spec=SPEC)
    if not claimed:
        record = record.model_copy(update={"spec": SPEC})
    result = None
    if status is not None:
        values = {"status": status, "started": 1.0, "ended": 2.0}
        result = AttemptResult.model_validate(values)
        if status == "failed":
            result = result.model_copy(update={"failure": FAILED})
    return PastRun(record=record, claims=(claim,) if claimed else (), result=result)


UNFINISHED = ["failed", "interrupted", None]


@pytest.mark.parametrize("status", UNFINISHED)
@pytest.mark.parametrize("continue_changed", [False, True])
@pytest.mark.parametrize("claimed", [False, True])
def test_an_unfinished_run_goes_on(
    status: str | None, continue_changed: bool, claimed: bool
) -> None:
    """Without a word, if the spec is the same, also if it was killed before its first claim."""
    past = _past(status, claimed=claimed)
    decision = decide(past, SPEC, continue_changed=continue_changed)
    assert decision.resume is past
    assert decision.notes == ()


def test_without_a_past_there_is_nothing_to_go_on_with() -> None:
    """The first run of a name needs no word."""
    for flags in ({}, {"fresh": True}, {"continue_changed": True}):
        decision = decide(None, SPEC, **flags)
        assert decision.resume is None
        assert decision.notes == ()


@pytest.mark.parametrize("status", [*UNFINISHED, "succeeded"])
@pytest.mark.parametrize("changes", [{}, LONGER, FASTER])
def test_fresh_is_a_new_run_whatever_there_is(status: str | None, changes: Any) -> None:
    """The user has said so."""
    decision = decide(_past(status), merged(SPEC, changes), fresh=True)
    assert decision.resume is None


@pytest.mark.parametrize("continue_changed", [False, True])
def test_a_finished_run_is_followed_by_a_new_one(continue_changed: bool) -> None:
    """There is nothing left of it to do, with --continue either."""
    decision = decide(_past("succeeded"), SPEC, continue_changed=continue_changed)
    assert decision.resume is None
    assert decision.notes == ("run uid-1 is finished: this is a new run",)


def test_a_finished_run_of_another_spec_is_followed_by_a_new_one() -> None:
    """And what changed is told."""
    decision = decide(_past("succeeded"), merged(SPEC, LONGER))
    assert decision.resume is None
    assert decision.notes == (
        "run uid-1 is finished and the spec changed since (limits.epochs 3 -> 9): "
        "this is a new run",
    )


def test_a_finished_run_goes_on_to_larger_limits() -> None:
    """With --continue, training is extended instead of repeated."""
    past = _past("succeeded")
    decision = decide(past, merged(SPEC, LONGER), continue_changed=True)
    assert decision.resume is past
    assert decision.notes == ("going on with a changed spec: limits.epochs 3 -> 9",)


@pytest.mark.parametrize(
    "changes",
    [
        LONGER,
        {"limits": {"max_steps": 7}},
        {"workers": {"count": 1}},
        {"data_workers": {"count": 1}},
        {"checkpoint": {"every": "10 steps"}},
        {"evaluate": {"every": "1 epoch"}},
        {"tracking": {"uri": "http://127.0.0.1:9"}},
        {"queue": {"name": "team"}},
        {"runtime": "torch@2"},
        {"image": "x@sha256:1"},
    ],
)
@pytest.mark.parametrize("status", UNFINISHED)
def test_a_safe_change_goes_on_only_if_asked_to(changes: dict[str, Any], status: str) -> None:
    """What says how long, how often, where and with how many it trains may change in a run."""
    past, spec = _past(status), merged(SPEC, changes)
    asked = decide(past, spec, continue_changed=True)
    assert asked.resume is past
    unasked = decide(past, spec)
    assert unasked.resume is None
    assert unasked.notes[0].startswith("the spec changed: ")
    assert unasked.notes[1] == (
        "this is a new run; uid-1 is left unfinished: --continue goes on with it instead"
    )


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (FASTER, "params.lr"),
        ({"params": {"depth": 3}}, "params.depth"),
        ({"seed": 1}, "seed"),
        ({"entrypoint": "digits:other"}, "entrypoint"),
        ({"data": {"train": {"batch_size": 7}}}, "data"),
        ({"env": {"A": "b"}}, "env"),
        ({"code": "src"}, "code"),
    ],
)
@pytest.mark.parametrize("status", [*UNFINISHED, "succeeded"])
def test_an_unsafe_change_is_a_new_run_whatever_is_asked(
    changes: dict[str, Any], key: str, status: str
) -> None:
    """What says what is trained can't change in a run, together with safe changes either."""
    spec = merged(merged(SPEC, changes), LONGER)
    asked = decide(_past(status), spec, continue_changed=True)
    assert asked.resume is None
    assert f"{key} can't change within a run: this is a new run" in asked.notes[1]
    assert "limits" not in asked.notes[1]
    unasked = decide(_past(status), spec)
    assert unasked.resume is None
    assert not any("--continue" in note for note in unasked.notes)
    assert any(key in note and "limits.epochs 3 -> 9" in note for note in unasked.notes)


def test_what_changed_is_told_old_and_new() -> None:
    """Also keys that came or went."""
    spec = merged(SPEC, {"params": {"depth": 3}})
    del spec["limits"]
    decision = decide(_past("failed"), spec)
    assert decision.notes[0] == (
        "the spec changed: limits {'epochs': 3} -> unset, params.depth unset -> 3"
    )


def test_the_newest_run_of_the_same_spec_is_what_it_is_about() -> None:
    """Another spec of that name, tried meanwhile, does not make an unfinished run forgotten."""
    unfinished = _past(None)
    other = _past("succeeded")
    tried = other.claims[0].model_copy(update={"spec": merged(SPEC, FASTER)})
    other = PastRun(record=other.record, claims=(tried,), result=other.result)
    assert relevant([unfinished, other], SPEC) is unfinished
    assert relevant([unfinished, _past("succeeded"), other], SPEC) is not unfinished
    assert relevant([unfinished, other], merged(SPEC, LONGER)) is other
    assert relevant([], SPEC) is None
