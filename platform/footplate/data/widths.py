"""
Steps of different widths, side by side in columns of one shape, and what they were before.

In a bucket every batch is as wide as its longest sample. A task carries several, and Arrow's
columns of arrays have one shape, so all are filled up, and each sample says what shape it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from footplate.data.columns import Column, Columns

__all__ = ["narrowed", "shape_name", "shapes_in", "side_by_side"]

Array = np.ndarray[Any, np.dtype[Any]]

_PREFIX = "__footplate_shape__."


def shape_name(name: str) -> str:
    """Of the column that says what shape the samples of another one have."""
    return f"{_PREFIX}{name}"


def shapes_in(columns: Sequence[str]) -> Mapping[str, str]:
    """Which columns say what shape others have: by the names of those."""
    return {name.removeprefix(_PREFIX): name for name in columns if name.startswith(_PREFIX)}


def side_by_side(steps: Sequence[Columns]) -> Columns:
    """
    The samples of all steps, one after the other.

    Raises:
        ValueError: If the steps differ in their columns, or in more of one than in its widths.
    """
    names = list(steps[0])
    if any(list(step) != names for step in steps):
        raise ValueError(f"columns differ: {sorted({tuple(step) for step in steps})}")
    joined: Columns = {}
    for name in names:
        columns = [step[name] for step in steps]
        arrays = [column for column in columns if isinstance(column, np.ndarray)]
        if not arrays:
            joined[name] = [value for column in columns for value in column]
            continue
        kinds = {f"{column.dtype} of {column.ndim} dimensions" for column in arrays}
        if len(arrays) < len(columns) or len(kinds) > 1:
            raise ValueError(f"column {name} is not the same in every batch: {sorted(kinds)}")
        joined.update(_filled(name, arrays))
    return joined


def narrowed(column: Column, shapes: Array) -> Array:
    """The samples of a step in the shape that they had."""
    array = np.asarray(column)
    shape = shapes[0] if len(shapes) else [0] * (array.ndim - 1)
    return array[:, *(slice(int(size)) for size in shape)]


def _filled(name: str, arrays: Sequence[Array]) -> Mapping[str, Column]:
    shapes = [array.shape[1:] for array in arrays]
    # Arrow has no values of no bytes.
    largest = tuple(max(*sizes, 1) for sizes in zip(*shapes, strict=True))
    if set(shapes) <= {largest}:
        return {name: _joined(arrays)}
    filled = []
    for array in arrays:
        missing = [size - own for size, own in zip(largest, array.shape[1:], strict=True)]
        filled.append(np.pad(array, [(0, 0), *((0, size) for size in missing)]))
    counts = [len(array) for array in arrays]
    return {name: _joined(filled), shape_name(name): np.repeat(np.array(shapes), counts, axis=0)}


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
