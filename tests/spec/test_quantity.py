"""Kubernetes quantities."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.spec import parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", "4"),
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("400m", "0.4"),
        ("1.5Gi", "1610612736"),
        ("8Gi", "8589934592"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("129e6", "129000000"),
        ("129M", "129000000"),
        ("1E", "1000000000000000000"),
        ("1e9", "1000000000"),
        ("1E9", "1000000000"),
        ("1e-3", "0.001"),
        ("1Ei", "1152921504606846976"),
        ("5n", "0.000000005"),
    ],
)
def test_reads_the_whole_grammar(text: str, number: str) -> None:
    """A quantity means what Kubernetes takes it for, exactly."""
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    "text", ["", " ", "1K", "1g", "Gi", "1 Gi", "1.2.3", "-1", "+1", "1e", "0x10", "1_000", "½"]
)
def test_refuses_everything_else(text: str) -> None:
    """No text silently becomes a number."""
    with pytest.raises(ValueError, match="is no Kubernetes quantity"):
        parse_quantity(text)


@given(st.integers(0, 10**9), st.sampled_from(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]))
def test_binary_suffixes_are_powers_of_1024(number: int, suffix: str) -> None:
    """Suffixes with an i scale by 1024, without rounding."""
    power = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].index(suffix) + 1
    assert parse_quantity(f"{number}{suffix}") == number * 1024**power


@given(st.decimals(0, 10**6, places=3, allow_nan=False, allow_infinity=False))
def test_thousandths_and_decimals_agree(number: Decimal) -> None:
    """The suffix m says thousandths."""
    assert parse_quantity(f"{int(number * 1000)}m") == parse_quantity(f"{number:f}")
