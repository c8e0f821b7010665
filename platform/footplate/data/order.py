"""
The order in which samples are trained on.

The order of an epoch is a pure function of (row groups, seed, epoch): nothing else enters, so it
is the same on every machine, for every number of ranks, and after every restart. Row groups are
permuted, consecutive ones form a pool, and samples are permuted inside their pool: a reader needs
only one pool's row groups at a time, however large the data set is.

Permutations sort by hash keys instead of asking a random generator, whose streams may change with
the version of its library. The hash is SplitMix64 (Steele, Lea, Flood: Fast Splittable
Pseudorandom Number Generators, OOPSLA 2014).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["EpochOrder", "Ids"]

Ids = npt.NDArray[np.int64]
_Keys = npt.NDArray[np.uint64]

_POOL_GROUPS = 8


class EpochOrder:
    """
    The order of one epoch.

    Args:
        group_rows: Rows of each row group, in the order of the manifest. Samples are numbered
            in that order from 0.
        seed: Of the job.
        epoch: From 0.
        shuffle: False is the order of the manifest.
    """

    def __init__(
        self, group_rows: Sequence[int], *, seed: int, epoch: int, shuffle: bool = True
    ) -> None:
        self._key = _mixed_scalar(_mixed_scalar(seed) ^ epoch)
        self._shuffle = shuffle
        sizes = np.asarray(group_rows, dtype=np.int64)
        self._firsts = np.concatenate(([0], np.cumsum(sizes)))[:-1]
        groups = np.arange(len(sizes))
        if shuffle:
            groups = _permutation(len(sizes), self._key)
        self._groups = groups
        self._sizes = sizes
        # Where each pool begins in the order, and the end of the last.
        self._pool_starts = np.concatenate(
            ([0], np.cumsum([sizes[pool].sum() for pool in self._pools()], dtype=np.int64))
        )

        self._newest_pool: tuple[int, Ids] | None = None

    def __len__(self) -> int:
        return int(self._pool_starts[-1])

    def take(self, start: int, stop: int) -> Ids:
        """The samples at positions ``start`` to ``stop`` (exclusive) of the epoch."""
        first = int(np.searchsorted(self._pool_starts, start, side="right")) - 1
        parts: list[Ids] = []
        for index in range(first, len(self._pool_starts) - 1):
            begin, end = int(self._pool_starts[index]), int(self._pool_starts[index + 1])
            if begin >= stop:
                break
            parts.append(self._pool(index)[max(start - begin, 0) : min(stop, end) - begin])
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _pools(self) -> list[Ids]:
        return [
            self._groups[begin : begin + _POOL_GROUPS]
            for begin in range(0, len(self._groups), _POOL_GROUPS)
        ]

    def _pool(self, index: int) -> Ids:
        # Consecutive steps take from the same pool, so the newest is kept.
        if self._newest_pool is None or self._newest_pool[0] != index:
            self._newest_pool = (index, self._ordered_pool(index))
        return self._newest_pool[1]

    def _ordered_pool(self, index: int) -> Ids:
        groups = self._groups[index * _POOL_GROUPS : (index + 1) * _POOL_GROUPS]
        samples = np.concatenate(
            [self._firsts[group] + np.arange(self._sizes[group]) for group in groups]
        )
        if not self._shuffle:
            return samples
        return samples[_permutation(len(samples), _mixed_scalar(self._key ^ (index + 1)))]


def _permutation(length: int, key: int) -> Ids:
    keys = _mixed(np.arange(length, dtype=np.uint64) ^ np.uint64(key))
    return np.argsort(keys, kind="stable")


def _mixed_scalar(value: int) -> int:
    return int(_mixed(np.array([value % 2**64], dtype=np.uint64))[0])


def _mixed(values: _Keys) -> _Keys:
    """SplitMix64's step and output function; wraps around by intent."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
