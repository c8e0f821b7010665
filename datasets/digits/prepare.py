"""
Handwritten digits: the images that scikit-learn ships, as two data sets.

The README says where the images come from and how they are split.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from footplate.data import Preparation

# The images stand in the order of the people who wrote them, and every person filled in the same
# form: the sequence of labels starts anew here, for the last three of them.
_FIRST_HELD_OUT = 1415


def train() -> Preparation:
    """All images but those of the last three people."""
    return _part("train", [0, _FIRST_HELD_OUT])


def valid() -> Preparation:
    """What the last three people wrote."""
    return _part("valid", [_FIRST_HELD_OUT, 1797])


def _part(name: str, rows: list[int]) -> Preparation:
    return Preparation(name=f"digits-{name}", source=[rows], transform=samples, rows_per_group=256)


def samples(rows: list[int]) -> dict[str, np.ndarray[Any, Any]]:
    """Images of 8x8 pixels from 0 to 16, and what they show, in scikit-learn's order."""
    from sklearn.datasets import load_digits

    digits, wanted = load_digits(), slice(*rows)
    return {
        "image": digits.images[wanted].astype(np.uint8),
        "label": digits.target[wanted].astype(np.int64),
    }
