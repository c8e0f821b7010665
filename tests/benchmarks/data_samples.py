"""The samples that every loader reads: 2,048 tokens each, of which the first is its number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LENGTH", "SAMPLE_BYTES", "Samples", "weighted_sum"]

LENGTH = 2048
SAMPLE_BYTES = 4 * LENGTH
# The size of a usual vocabulary; small numbers are frequent, as in text.
_VOCABULARY = 50_257
_BLOCK = 4096

Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Samples:
    """
    A file of nothing but tokens, from which each loader's own format is made.

    Args:
        path: Of the file.
    """

    path: Path

    @classmethod
    def make(cls, path: Path, rows: int) -> Samples:
        """Write so many samples, the same ones each time."""
        draws = np.random.default_rng(0).random((min(rows, _BLOCK), LENGTH), dtype=np.float32)
        block = np.power(np.float32(_VOCABULARY), draws).astype(np.int32)
        with path.open("wb") as file:
            for start in range(0, rows, _BLOCK):
                count = min(_BLOCK, rows - start)
                block[:count, 0] = np.arange(start, start + count)
                file.write(block[:count].tobytes())
        return cls(path)

    def mapped(self) -> Tokens:
        """All of them, mapped into memory."""
        return np.memmap(self.path, dtype=np.int32, mode="r").reshape(-1, LENGTH)

    def blocks(self, rows: int = _BLOCK) -> Iterator[Tokens]:
        """Consecutive ones, so many at a time."""
        tokens = self.mapped()
        for start in range(0, len(tokens), rows):
            yield tokens[start : start + rows]

    def weighted_sum(self) -> int:
        """What an epoch with every token of every sample exactly once comes to."""
        return sum(map(weighted_sum, self.blocks())) % 2**64


def weighted_sum(tokens: npt.NDArray[Any]) -> int:
    """The sum of all tokens, each as often as the number of its sample says; modulo 2**64."""
    numbers = tokens[:, 0].astype(np.uint64) + np.uint64(1)
    return int((tokens.sum(axis=1, dtype=np.uint64) * numbers).sum())
