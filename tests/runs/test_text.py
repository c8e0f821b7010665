"""Numbers and times in sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.runs.text import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.4, "0s"),
        (7, "7s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (185, "3m05s"),
        (3599.7, "1h00m"),
        (7800, "2h10m"),
        (360_000, "100h00m"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    """Two units at most, rounded, without a 60 in them."""
    assert duration(seconds) == text


@given(st.floats(0, 10**7))
def test_a_duration_is_near_what_it_says(seconds: float) -> None:
    """Within a second below an hour, within a minute above."""
    total, digits = 0, ""
    for character in duration(seconds):
        if character.isdigit():
            digits += character
        else:
            total += int(digits) * {"h": 3600, "m": 60, "s": 1}[character]
            digits = ""
    assert abs(total - seconds) <= (0.5 if seconds < 3599 else 60)
