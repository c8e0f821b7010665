"""Names and values that MLflow refuses are changed in one way, always the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.tracking.naming import accepted_name, shortened

_NAMES = st.text(max_size=300) | st.text("ab./@ -_:\n", max_size=12)


@pytest.mark.parametrize(
    "name", ["loss", "valid/acc", "lr.0", "a b", "précision", "t:5", ".5", "x" * 200]
)
def test_a_name_that_mlflow_takes_stays(name: str) -> None:
    """Nobody has to look for a metric under another name without need."""
    assert accepted_name(name) == name


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("acc@5", "acc_5-"),
        ("p(x)", "p_x_-"),
        ("50%", "50_-"),
        ("🚂", "_-"),
        ("//loss", "loss-"),
        ("../loss", "loss-"),
        ("a/./b/", "a/b-"),
        ("x" * 300, "x" * 191 + "-"),
    ],
)
def test_a_refused_name_stays_readable(name: str, start: str) -> None:
    """A person finds the metric in the list, though its name had to change."""
    assert accepted_name(name).startswith(start)


@settings(deadline=None, max_examples=500)
@given(name=_NAMES)
def test_mlflow_takes_every_name(name: str) -> None:
    """No name that a user may give a metric or parameter stops the tracking of a run."""
    from mlflow.utils.validation import _validate_metric_name, _validate_param

    _validate_metric_name(accepted_name(name))
    _validate_param(accepted_name(name), "1")


@given(names=st.sets(_NAMES, min_size=2, max_size=8))
def test_two_names_never_fall_together(names: set[str]) -> None:
    """Two metrics are two curves, and never one with the values of both."""
    assert len({accepted_name(name) for name in names}) == len(names)


def test_long_values_are_named_by_their_digest() -> None:
    """Two long values that begin alike are told apart; nothing is cut off in silence."""
    first, second = shortened("x" * 6001), shortened("x" * 6002)
    assert shortened("x" * 500) == "x" * 500
    assert first.startswith("sha256:")
    assert "6001 characters" in first
    assert first != second
    assert len(first) <= 500
