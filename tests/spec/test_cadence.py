"""Intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.spec import parse_cadence
from footplate.spec.cadence import parse_save_cadence


@pytest.mark.parametrize(
    ("text", "every", "unit"),
    [
        ("500 steps", 500, "steps"),
        ("1 step", 1, "steps"),
        ("2 epochs", 2, "epochs"),
        ("1epoch", 1, "epochs"),
        ("30s", 30, "seconds"),
        ("10m", 600, "seconds"),
        ("1.5h", 5400, "seconds"),
        (" 5 m ", 300, "seconds"),
    ],
)
def test_reads_steps_epochs_and_time(text: str, every: float, unit: str) -> None:
    """An interval has a number and one of three units."""
    cadence = parse_cadence(text)
    assert (cadence.every, cadence.unit) == (every, unit)


@pytest.mark.parametrize("value", ["", "500", "5 minutes", "-1 steps", "1.5 epochs", "m", 5, None])
def test_refuses_what_has_no_unit(value: object) -> None:
    """A bare number is refused rather than guessed at."""
    with pytest.raises(ValueError, match="is no interval; write"):
        parse_cadence(value)


@pytest.mark.parametrize("text", ["0 steps", "0s", "0.0m"])
def test_refuses_zero(text: str) -> None:
    """An interval of nothing would never end."""
    with pytest.raises(ValueError, match="is not a positive interval"):
        parse_cadence(text)


@given(st.integers(1, 10**6), st.sampled_from([" steps", " epochs", "s", "m", "h"]))
def test_is_written_as_it_was_read(number: int, unit: str) -> None:
    """The text survives, so that a spec is shown as its author wrote it."""
    text = f"{number}{unit}"
    assert str(parse_cadence(text)) == text
    assert parse_cadence(parse_cadence(text)) == parse_cadence(text)


def test_saving_may_be_left_to_us() -> None:
    """How often to save can be found out; how often to evaluate can't."""
    cadence = parse_save_cadence(" auto ")
    assert (cadence.unit, str(cadence)) == ("auto", "auto")
    assert parse_save_cadence(cadence) is cadence
    assert parse_save_cadence("10m") == parse_cadence("10m")
    with pytest.raises(ValueError, match=r"is no interval; write .* or 'auto'"):
        parse_save_cadence("often")
    with pytest.raises(ValueError, match="'auto' is no interval"):
        parse_cadence("auto")
