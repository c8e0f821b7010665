"""
Memory that is used again.

To make memory that is new to the kernel ready costs more than what is then copied to it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from footplate.data.columns import Lists, Matrix, Objects, Source

__all__ = ["Buffers", "Shelf"]

Array = np.ndarray[Any, np.dtype[Any]]

# Smaller arrays the allocator keeps by itself.
_LEAST_BYTES = 64 << 10
_ROUND_BYTES = 1 << 20


class Buffers:
    """
    Arrays whose memory is used for the next one when nothing refers to them any more.

    Args:
        kept: Pieces of memory without a user that are kept, at most, of each size; sizes are
            whole MiB.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._free: dict[int, deque[Array]] = {}

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array with any content."""
        size = math.prod(shape) * dtype.itemsize
        if size < _LEAST_BYTES:
            return np.empty(shape, dtype)
        rounded = -(-size // _ROUND_BYTES) * _ROUND_BYTES
        free = self._free.setdefault(rounded, deque(maxlen=self._kept))
        try:
            memory = free.pop()
        except IndexError:
            memory = np.empty(rounded, np.uint8)
        # As bytes first: not every type can be named to NumPy in the way that a lease has to.
        return np.asarray(_Lease(memory, free, size)).view(dtype).reshape(shape)


class _Lease:
    """What an array, and so every view of it, refers to as long as it is there."""

    def __init__(self, memory: Array, free: deque[Array], size: int) -> None:
        self._memory = memory
        self._free = free
        self.__array_interface__ = {
            "version": 3,
            "data": (memory.ctypes.data, False),
            "shape": (size,),
            "typestr": "|u1",
        }

    def __del__(self) -> None:
        self._free.append(self._memory)


class Shelf:
    """
    Places for the columns of row groups, side by side.

    So samples of several row groups are taken out of one array with one call, and the memory is
    used again: the place that was cleared last is taken first, so that no more of them are in
    memory than were taken at once.

    Args:
        places: Row groups. Those for which there is no place stay where they are.
        rows: Of a place.
    """

    def __init__(self, places: int, rows: int) -> None:
        self._rows = rows
        self._places = places
        self._free = list(reversed(range(places)))
        self._columns: dict[str, Array] = {}

    def put(self, sources: Mapping[str, Source]) -> tuple[Mapping[str, Source], int | None]:
        """
        Copy the columns of a row group: arrays to a place, if there is one, which is told, too.

        Nothing that is returned is a view of what may be changed, as a file may that is mapped.
        """
        has_arrays = any(isinstance(source, Matrix) for source in sources.values())
        try:
            place = self._free.pop() if has_arrays else None
        except IndexError:
            place = None
        return {name: self._copied(name, source, place) for name, source in sources.items()}, place

    def _copied(self, name: str, source: Source, place: int | None) -> Source:
        if isinstance(source, Objects):
            return source.copied()
        if isinstance(source, Lists):
            return source  # Arrow has put these together
        if place is None:
            return source.joined()
        return source.copied(self._column(name, source), place * self._rows)

    def clear(self, place: int | None) -> None:
        """Nobody uses a place any more."""
        if place is not None:
            self._free.append(place)

    def _column(self, name: str, source: Matrix) -> Array:
        first = source.pieces[0]
        # Two threads may both make one: the first that is there is kept.
        if name not in self._columns:
            shape = self._places * self._rows, *first.shape[1:]
            self._columns.setdefault(name, np.empty(shape, first.dtype))
        return self._columns[name]
