"""What is done about a RayJob of the same name."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.runs.submission import Answer, answer

_DIGESTS = {
    "footplate.dev/spec-digest": "sha256:spec",
    "footplate.dev/runtime-digest": "sha256:runtime",
    "footplate.dev/code-digest": "sha256:code",
}


def _rayjob(state: str = "", **changed: str) -> dict[str, Any]:
    annotations = _DIGESTS | {
        f"footplate.dev/{key}-digest": value for key, value in changed.items()
    }
    return {
        "metadata": {"name": "digits", "annotations": annotations},
        "status": {"jobDeploymentStatus": state},
    }


@pytest.mark.parametrize("state", ["", "Initializing", "Running", "Suspended", "Retrying"])
def test_the_same_job_is_finished_not_made_twice(state: str) -> None:
    """Repeating a submission is harmless, whether or not it was half-made."""
    for has_identity in (True, False):
        decision, _ = answer(_rayjob(state), _rayjob(), has_identity=has_identity, replace=False)
        assert decision is Answer.FINISH


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": "sha256:other"}, "another spec"),
        ({"runtime": "sha256:other"}, "another runtime"),
        ({"code": "sha256:other"}, "another code"),
        ({"spec": "sha256:other", "code": "sha256:other"}, "another spec and code"),
    ],
)
@pytest.mark.parametrize("state", ["", "Running", "Complete", "Failed"])
def test_another_job_of_that_name_is_left_alone(
    state: str, change: dict[str, str], said: str
) -> None:
    """What differs is said, and nothing is changed, however the other one stands."""
    decision, why = answer(_rayjob(state, **change), _rayjob(), has_identity=True, replace=False)
    assert decision is Answer.REFUSE
    assert said in why


@pytest.mark.parametrize("state", ["Complete", "Failed", "ValidationFailed"])
def test_an_ended_run_is_not_started_again_unasked(state: str) -> None:
    """A run that has ended is a result; a new one takes a word of the user."""
    decision, why = answer(_rayjob(state), _rayjob(), has_identity=True, replace=False)
    assert decision is Answer.REFUSE
    assert f"ended already ({state})" in why


def test_what_failed_for_being_half_made_is_made_anew() -> None:
    """Its pods never had an identity: nothing is lost, and the command just works."""
    decision, _ = answer(_rayjob("Failed"), _rayjob(), has_identity=False, replace=False)
    assert decision is Answer.REPLACE


@pytest.mark.parametrize("state", ["", "Running", "Complete"])
@pytest.mark.parametrize("change", [{}, {"spec": "sha256:other"}])
def test_replacing_takes_the_users_word(state: str, change: dict[str, str]) -> None:
    """With it any run of that name gives way."""
    decision, _ = answer(_rayjob(state, **change), _rayjob(), has_identity=True, replace=True)
    assert decision is Answer.REPLACE


def test_a_rayjob_of_somebody_else_is_named_as_such() -> None:
    """One without our digests is not called a run."""
    stranger = {"metadata": {"name": "digits"}, "status": {}}
    decision, why = answer(stranger, _rayjob(), has_identity=False, replace=False)
    assert decision is Answer.REFUSE
    assert "Footplate did not make" in why


def test_one_that_is_being_deleted_is_waited_for() -> None:
    """It is not taken for a job that is submitted already, and vanishes a moment later."""
    going = _rayjob("Running")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    decision, _ = answer(going, _rayjob(), has_identity=True, replace=False)
    assert decision is Answer.REPLACE


def test_a_cancelled_one_is_not_taken_for_submitted() -> None:
    """Between the mark and its deletion it still saves."""
    ending = _rayjob("Running")
    ending["metadata"]["annotations"]["footplate.dev/cancelled"] = "2026-01-01T00:00:00Z by ada"
    decision, why = answer(ending, _rayjob(), has_identity=True, replace=False)
    assert decision is Answer.REFUSE
    assert "cancelled" in why
