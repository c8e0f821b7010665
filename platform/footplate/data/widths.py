"""
Steps of different widths, side by side in columns of one width, and what they were before.

In a bucket every batch is as wide as its longest sample. A task carries several, and Arrow's
columns of arrays have one shape, so all are filled up, and each sample says how wide it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from footplate.data.columns import Column, Columns

__all__ = ["side_by_side", "width_name", "widths_in"]

Array = np.ndarray[Any, np.dtype[Any]]

_PREFIX = "__footplate_width__."


def width_name(name: str) -> str:
    """Of the column that says how wide the samples of another one are."""
    return f"{_PREFIX}{name}"


def widths_in(columns: Sequence[str]) -> Mapping[str, str]:
    """Which columns say how wide others are: by the names of those."""
    return {name.removeprefix(_PREFIX): name for name in columns if name.startswith(_PREFIX)}


def side_by_side(steps: Sequence[Columns]) -> Columns:
    """
    The samples of all steps, one after the other.

    Raises:
        ValueError: If the steps differ in their columns, or in more than a width.
    """
    names = list(steps[0])
    if any(list(step) != names for step in steps):
        raise ValueError(f"columns differ: {sorted({tuple(step) for step in steps})}")
    joined: Columns = {}
    for name in names:
        columns = [step[name] for step in steps]
        arrays = [column for column in columns if isinstance(column, np.ndarray)]
        if len(arrays) < len(columns):
            joined[name] = [value for column in columns for value in column]
        elif min(array.ndim for array in arrays) < 2:
            joined[name] = _joined(arrays)
        else:
            joined.update(_widened(name, arrays))
    return joined


def _widened(name: str, arrays: Sequence[Array]) -> Mapping[str, Column]:
    widths = [array.shape[1] for array in arrays]
    # Arrow has no values of no bytes.
    widest = max(*widths, 1)
    if set(widths) == {widest}:
        return {name: _joined(arrays)}
    filled = [
        np.pad(array, [(0, 0), (0, widest - array.shape[1]), *[(0, 0)] * (array.ndim - 2)])
        for array in arrays
    ]
    counts = [len(array) for array in arrays]
    return {name: _joined(filled), width_name(name): np.repeat(widths, counts)}


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
