"""Numbers drawn for samples are random enough, and always the same."""

from __future__ import annotations

import numpy as np

from footplate.data.draws import draws

_KEYS = np.arange(20_000, dtype=np.uint64)


def test_they_are_evenly_distributed() -> None:
    """In each of ten equal parts lies a tenth, whichever of a sample's numbers it is."""
    numbers = draws(_KEYS, 3)

    assert numbers.shape == (20_000, 3)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    for column in numbers.T:
        counts, _ = np.histogram(column, bins=10, range=(0, 1))
        assert np.abs(counts / 2000 - 1).max() < 0.1
    assert np.abs(np.corrcoef(numbers.T) - np.eye(3)).max() < 0.03


def test_they_depend_on_the_key_alone() -> None:
    """Neither the neighbours of a sample nor how many numbers are drawn changes them."""
    picked = np.array([7, 3, 19_999])

    np.testing.assert_array_equal(draws(_KEYS[picked], 2), draws(_KEYS, 5)[picked, :2])


def test_they_stay_for_ever() -> None:
    """A run that goes on with a newer version sees what it would have seen."""
    expected = [0.3682, 0.9140]
    np.testing.assert_allclose(draws(np.array([1], dtype=np.uint64), 2)[0], expected, atol=1e-4)
