"""Steps of different widths travel side by side, and are what they were afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from footplate.data.columns import Columns
from footplate.data.widths import narrowed, shape_name, shapes_in, side_by_side


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
    assert shapes_in(list(joined)) == {"x": shape_name("x")}
    assert np.asarray(joined[shape_name("x")]).tolist() == [[3], [3], [5]]


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 3, 3), (1, 5, 5)],
        [(2, 4, 3), (3, 4, 6), (1, 4, 1)],
        [(2, 0), (1, 2)],
        [(2, 0)],
        [(2, 0, 4)],
        [(1, 2, 3, 4), (2, 4, 3, 2)],
    ],
)
def test_each_step_is_what_it_was(shapes: list[tuple[int, ...]]) -> None:
    """Whichever of its dimensions depend on its longest sample; none may be as many as nothing."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 255, shape, np.uint8) for shape in shapes]

    joined = side_by_side([{"x": array} for array in arrays])

    whole, told = np.asarray(joined["x"]), np.asarray(joined[shape_name("x")])
    assert whole.size
    start = 0
    for array in arrays:
        stop = start + len(array)
        assert np.array_equal(narrowed(whole[start:stop], told[start:stop]), array)
        start = stop
    assert not narrowed(whole[:0], told[:0]).size


def test_one_shape_needs_not_be_said() -> None:
    """Nor is anything copied of a single step."""
    image = np.zeros((2, 3, 4))

    joined = side_by_side([{"image": image}])

    assert joined == {"image": image}
    assert joined["image"] is image


@pytest.mark.parametrize(
    "other",
    [
        {"y": np.zeros((1, 3))},
        {"x": np.zeros((1, 3, 2))},
        {"x": np.zeros(1)},
        {"x": np.zeros((1, 3), np.float32)},
        {"x": ["text"]},
    ],
)
def test_steps_have_the_same_columns(other: Columns) -> None:
    """Else what came of one sample would depend on what came of others."""
    with pytest.raises(ValueError, match=r"columns differ|is not the same in every batch"):
        side_by_side([{"x": np.zeros((1, 3))}, other])
