"""What is read from the message of a RayJob."""

from __future__ import annotations

import pytest

from footplate.runs.driver_message import driver_end, driver_output

_HEADER = (
    "Job entrypoint command failed with exit code 13, last available logs (truncated to 20,000 "
    "chars):\n"
)
_RAYS = (
    "2026-11-29 13:56:57,143\tINFO job_manager.py:581 -- Runtime env is setting up.\n"
    "Running entrypoint for job digits-x: python -m footplate.train\n"
)


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("", ""),
        ("epoch 3\n\x1b[31mno such file\x1b[0m\n\n", "no such file"),
        ("footplate: the store refuses\nCheck its credentials.\n", "the store refuses"),
        ("footplate: one\nfootplate: two\nand more\n", "two"),
        ("footplate: failed after step 7\nTraceback\nKeyError: 1\n", "KeyError: 1"),
        ("footplate: interrupted after step 7\n", "interrupted after step 7"),
    ],
)
def test_a_driver_ends_with_its_error(printed: str, said: str) -> None:
    """Not with the hint below it, nor with what Ray prints around every job."""
    end = driver_end(_HEADER + _RAYS + printed, "AppFailed")
    assert (end.exit_code, end.said) == (13, said)


def test_without_an_exit_code_ray_has_the_word() -> None:
    """As of a driver that was never started."""
    end = driver_end("Job supervisor actor could not be scheduled\nwithin 900 s", "AppFailed")
    assert str(end) == "AppFailed: Job supervisor actor could not be scheduled within 900 s"


def test_the_output_is_what_follows_the_header() -> None:
    """A message without one quotes no driver."""
    assert driver_output(f"{_HEADER}one\n\ntwo\n") == ["one", "", "two"]
    assert driver_output("Job is currently running.") == []
    assert driver_output("") == []
