"""What consecutive samples are made of: rows, or parts of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

__all__ = ["Ids", "Selection", "running_sums"]

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Selection:
    """
    What some consecutive samples are made of.

    A sample is a row. With packing it is a sequence of pieces, each of them some consecutive
    values of a row's list; then all four arrays are there, otherwise only the first.

    Attributes:
        ids: Row of each piece. The rows of all row groups of all files are numbered from 0; the
            parts of a mixture one after the other.
        offsets: First piece of each sample, and the number of pieces.
        begins: First value that a piece takes of its row's list.
        ends: One past the last.
    """

    ids: Ids
    offsets: Ids | None = None
    begins: Ids | None = None
    ends: Ids | None = None

    def __len__(self) -> int:
        """Samples."""
        return len(self.ids) if self.offsets is None else len(self.offsets) - 1

    def __getitem__(self, samples: slice) -> Self:
        """Some consecutive samples."""
        start, stop, step = samples.indices(len(self))
        assert step == 1, "samples are taken in their order"
        stop = max(start, stop)
        if self.offsets is None or self.begins is None or self.ends is None:
            return type(self)(self.ids[start:stop])
        first, last = self.offsets[start], self.offsets[stop]
        return type(self)(
            self.ids[first:last],
            self.offsets[start : stop + 1] - first,
            self.begins[first:last],
            self.ends[first:last],
        )

    def picked(self, samples: Ids) -> Self:
        """The samples of these numbers, in this sequence."""
        if self.offsets is None or self.begins is None or self.ends is None:
            return type(self)(self.ids[samples])
        counts = np.diff(self.offsets)[samples]
        offsets = running_sums(counts)
        pieces = np.arange(offsets[-1]) + np.repeat(self.offsets[samples] - offsets[:-1], counts)
        return type(self)(self.ids[pieces], offsets, self.begins[pieces], self.ends[pieces])

    @classmethod
    def concatenated(cls, parts: Sequence[Self]) -> Self:
        """The samples of all parts, at least one, either all of rows or all of pieces."""
        if len(parts) == 1:
            return parts[0]
        ids = np.concatenate([part.ids for part in parts])
        offsets = [part.offsets for part in parts if part.offsets is not None]
        if not offsets:
            return cls(ids)
        begins = [part.begins for part in parts if part.begins is not None]
        ends = [part.ends for part in parts if part.ends is not None]
        assert len(parts) == len(offsets) == len(begins) == len(ends)
        counts = np.concatenate([np.diff(each) for each in offsets])
        return cls(ids, running_sums(counts), np.concatenate(begins), np.concatenate(ends))


def running_sums(counts: Ids) -> Ids:
    """Where each of several consecutive parts begins, and where the last one ends."""
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums
