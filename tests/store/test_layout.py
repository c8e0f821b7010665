"""Names in the store."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.store import AttemptPaths, CheckpointName, RunPaths

_NAMES = st.builds(CheckpointName, st.integers(0, 10**12), st.integers(1, 10**6))


@given(name=_NAMES)
def test_a_checkpoint_name_round_trips(name: CheckpointName) -> None:
    """The folder's name says the step and the attempt, however large."""
    assert CheckpointName.parse(str(name)) == name


@given(text=st.text("step-.a0123456789\u0663\u00b2_ ") | st.text())
def test_only_a_name_as_we_write_it_is_a_checkpoint(text: str) -> None:
    """A folder that parses is the folder that its name leads to again."""
    name = CheckpointName.parse(text)
    assert name is None or str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "step-500.a0001",
        "step-000000500.a0001",
        "step-00000500",
        "step-00000500.a1",
        "step-00000500.a0001.tmp",
        "step-00000500.a0001\n",
        "step-\u0660\u0660\u0660\u0660\u0660\u0665\u0660\u0660.a0001",
        ".DS_Store",
    ],
)
def test_stray_folders_are_no_checkpoints(text: str) -> None:
    """What else lies in the folder of checkpoints is passed over."""
    assert CheckpointName.parse(text) is None


def test_checkpoints_are_ordered_by_step_as_a_number() -> None:
    """Step 500 comes before 2500, and 99999999 before a step of nine digits."""
    steps = [2, 500, 2500, 99_999_999, 100_000_000, 1_000_000_000]
    names = [CheckpointName(step, 1) for step in steps]
    shuffled = random.Random(0).sample(names, len(names))  # noqa: S311  # repeatable
    assert sorted(shuffled) == names
    assert sorted([CheckpointName(5, 2), CheckpointName(5, 1), CheckpointName(4, 9)]) == [
        CheckpointName(4, 9),
        CheckpointName(5, 1),
        CheckpointName(5, 2),
    ]


def test_everything_of_a_run_stands_below_its_folder(run: RunPaths) -> None:
    """The layout is part of the contract with those who read the store without us."""
    root = "local/digits/uid-1"
    assert run.root == root
    assert run.record == f"{root}/run.json"
    assert run.data == f"{root}/data.json"
    assert run.log(3) == f"{root}/logs/attempt-0003.log"
    assert run.log_segment(3, 12) == f"{root}/logs/attempt-0003/000012.log"
    assert run.cancelled == f"{root}/cancelled.json"
    assert run.checkpoint(CheckpointName(1000, 1)) == f"{root}/checkpoints/step-00001000.a0001"
    attempt = run.attempt(12)
    assert attempt == AttemptPaths(f"{root}/attempts/0012")
    files = {
        attempt.claim: "claim.json",
        attempt.progress: "progress.json",
        attempt.result: "result.json",
        attempt.failure(7): "failures/rank-00007.json",
        attempt.metric_segment(1): "metrics/000001.jsonl",
        attempt.notes: "notes.json",
        attempt.stop: "stop.json",
        attempt.request: "request.json",
        attempt.end: "end.json",
        attempt.ray: "ray",
    }
    for path, name in files.items():
        assert path == f"{root}/attempts/0012/{name}"
