"""A job whose run starts where another one ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from footplate.errors import SpecError
from footplate.runs.continuing import continued
from footplate.spec import Job


def _job(**values: Any) -> Job:
    return Job.from_dict({"name": "toy"} | values, folder=Path("/somewhere"), source="toy")


def test_all_of_its_state_is_taken_over() -> None:
    """As if that run went on; what the spec says stays, relative paths included."""
    job = continued(_job(entrypoint="m:f", limits={"epochs": 1}, seed=3), "digits")
    assert job.init_from is not None
    assert (job.init_from.run, job.init_from.what) == ("digits", "everything")
    assert (job.seed, job.folder) == (3, Path("/somewhere"))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"entrypoint": "m:f", "limits": {"epochs": 1}, "init_from": {"uri": "x"}},
            "init_from: is said by the spec too",
        ),
        ({"command": ["python", "x.py"]}, "a command restores its own state"),
    ],
)
def test_what_can_not_start_from_it_is_refused(values: dict[str, Any], problem: str) -> None:
    """Rather than one of two wishes being forgotten."""
    with pytest.raises(SpecError, match=problem):
        continued(_job(**values), "digits")
