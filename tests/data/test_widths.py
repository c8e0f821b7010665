"""Steps of different widths travel side by side, and say what they were."""

from __future__ import annotations

import numpy as np
import pytest

from footplate.data.columns import Columns
from footplate.data.widths import side_by_side, width_name, widths_in


def test_steps_are_as_wide_as_the_widest() -> None:
    """What is filled up with says nothing; each sample says how wide it was."""
    steps: list[Columns] = [
        {"x": np.ones((2, 3), np.uint8), "n": np.arange(2), "text": ["a", "b"]},
        {"x": np.full((1, 5), 7, np.uint8), "n": np.arange(1), "text": ["c"]},
    ]

    joined = side_by_side(steps)

    assert np.asarray(joined["x"]).tolist() == [[1, 1, 1, 0, 0]] * 2 + [[7] * 5]
    assert np.asarray(joined["n"]).tolist() == [0, 1, 0]
    assert joined["text"] == ["a", "b", "c"]
    assert widths_in(list(joined)) == {"x": width_name("x")}
    assert np.asarray(joined[width_name("x")]).tolist() == [3, 3, 5]


def test_one_width_needs_not_be_said() -> None:
    """Nor is anything copied of a single step."""
    image = np.zeros((2, 3, 4))

    joined = side_by_side([{"image": image}])

    assert joined == {"image": image}
    assert joined["image"] is image


@pytest.mark.parametrize("shape", [(2, 0), (2, 0, 4)])
def test_nothing_is_wide_enough_to_travel(shape: tuple[int, ...]) -> None:
    """A width of nothing is one, too, for Arrow has no values of no bytes."""
    joined = side_by_side([{"x": np.zeros(shape)}])

    assert np.asarray(joined["x"]).shape == (2, 1, *shape[2:])
    assert np.asarray(joined[width_name("x")]).tolist() == [0, 0]


@pytest.mark.parametrize(
    "other", [{"y": np.zeros((1, 3))}, {"x": np.zeros((1, 3, 2))}, {"x": np.zeros(1)}]
)
def test_steps_have_the_same_columns(other: Columns) -> None:
    """Else what came of one sample would depend on what came of others."""
    with pytest.raises(ValueError):  # noqa: PT011 - NumPy's own words for some
        side_by_side([{"x": np.zeros((1, 3))}, other])
