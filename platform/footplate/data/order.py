"""
The order in which samples are trained on.

The order of an epoch is a pure function of (row groups, seed, epoch): nothing else enters, so it
is the same on every machine, for every number of ranks, and after every restart. Row groups are
drawn into pools, and samples are permuted inside their pool: a reader needs only one pool's row
groups at a time, however large the data set is.

A pool takes one row group from each of several equal stretches of the data set. So every pool
is a sample of the whole, even where the data is sorted, and no epoch is much less well shuffled
than the average one.

Permutations sort by hash keys instead of asking a random generator, whose streams may change with
the version of its library. The hash is SplitMix64 (Steele, Lea, Flood: Fast Splittable
Pseudorandom Number Generators, OOPSLA 2014), a bijection: no two keys of a permutation are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from footplate.data.selection import Ids, Selection, running_sums
from footplate.data.threads import at_once

__all__ = [
    "POOLS_KEPT",
    "Keys",
    "Order",
    "Pools",
    "ShuffledOrder",
    "mixed_key",
    "mixed_keys",
    "overlaps",
    "permutation",
    "take_around",
    "take_rows",
]

Keys = npt.NDArray[np.uint64]

POOLS_KEPT = 2
"""Orders of pools kept in memory: a step takes from one, or at its end from two."""


class Order(Protocol):
    """The order of the samples of every epoch."""

    @property
    def rows(self) -> int:
        """Samples of an epoch; of every epoch as many, so that a position is one integer."""

    def take(self, epoch: int, start: int, stop: int) -> Selection:
        """
        The samples at positions ``start`` to ``stop`` (exclusive) of an epoch.

        The cost is that of the pools that are touched, wherever in an epoch they are.
        """


def take_around(order: Order, epoch: int, start: int, stop: int) -> Selection:
    """
    Like ``order.take``, but past the end it goes on with the start of the same epoch.

    That is how a step is padded; again and again where it is larger than the data set.
    """
    parts: list[Selection] = []
    while start < stop:
        begin = start % order.rows
        end = min(begin + stop - start, order.rows)
        parts.append(order.take(epoch, begin, end))
        start += end - begin
    return Selection.concatenated(parts) if parts else order.take(epoch, 0, 0)


@dataclass(frozen=True, eq=False, slots=True)
class Pools:
    """
    The pools of one epoch.

    Attributes:
        key: Of the epoch's permutations.
        groups: The row groups, pool after pool.
        bounds: Where each pool begins in ``groups``, and where the last one ends.
        starts: Where each pool begins in the order of the epoch, and where the last one ends.
    """

    key: int
    groups: Ids
    bounds: Ids
    starts: Ids

    def __getitem__(self, index: int) -> Ids:
        """The row groups of a pool."""
        return self.groups[self.bounds[index] : self.bounds[index + 1]]


class ShuffledOrder:
    """
    All rows of a data set, once in every epoch.

    Args:
        group_rows: Rows of each row group, in the order of the manifest.
        seed: Of the job.
        shuffle: False is the order of the manifest.
        pool: Row groups at most that are shuffled together.
        first_row: Number of the first row. The parts of a mixture are numbered one after the
            other; each is then shuffled in its own way.

    Attributes:
        rows: Samples of an epoch.
    """

    def __init__(
        self,
        group_rows: Sequence[int],
        *,
        seed: int,
        shuffle: bool = True,
        pool: int = 8,
        first_row: int = 0,
    ) -> None:
        self.shuffle = shuffle
        self._sizes = np.asarray(group_rows, dtype=np.int64)
        self._firsts = first_row + running_sums(self._sizes)[:-1]
        self.rows = int(self._sizes.sum())
        self._key = mixed_key(mixed_key(seed) ^ first_row)
        self._pool_groups = pool
        self.pools = lru_cache(POOLS_KEPT)(self._pools)
        self._rows_of_pool = lru_cache(POOLS_KEPT)(self._rows_of)

    def take(self, epoch: int, start: int, stop: int) -> Selection:
        """The samples at positions ``start`` to ``stop`` (exclusive) of an epoch."""
        return take_rows(self.pools(epoch), start, stop, partial(self._rows_of_pool, epoch))

    def with_lengths(
        self, epoch: int, index: int, lengths_of: Callable[[int], Ids]
    ) -> tuple[Ids, Ids]:
        """
        The rows of a pool in the order of the epoch, and the length of each.

        Args:
            lengths_of: Gives those of the rows of a row group, as stored. Called in several
                threads at once: a store may take its time for each.
        """
        lengths = at_once(lengths_of, self.pools(epoch)[index].tolist())
        return self._rows_of_pool(epoch, index), self._arranged(epoch, index, lengths)

    def _rows_of(self, epoch: int, index: int) -> Ids:
        groups = self.pools(epoch)[index]
        firsts, sizes = self._firsts[groups].tolist(), self._sizes[groups].tolist()
        rows = [
            np.arange(first, first + size, dtype=np.int64)
            for first, size in zip(firsts, sizes, strict=True)
        ]
        return self._arranged(epoch, index, rows)

    def _arranged(self, epoch: int, index: int, stored: Sequence[Ids]) -> Ids:
        """What is known of the rows of a pool's row groups, in the order of the epoch."""
        values = np.concatenate(stored)
        if not self.shuffle:
            return values
        return values[permutation(len(values), self.pools(epoch).key, index)]

    def _pools(self, epoch: int) -> Pools:
        key = mixed_key(self._key ^ epoch)
        count = -(-len(self._sizes) // self._pool_groups)
        if self.shuffle:
            groups, bounds = _drawn(len(self._sizes), count, key)
        else:
            groups = np.arange(len(self._sizes), dtype=np.int64)
            bounds = np.minimum(np.arange(count + 1) * self._pool_groups, len(groups))
        return Pools(key, groups, bounds, running_sums(self._sizes[groups])[bounds])


def _drawn(groups: int, pools: int, key: int) -> tuple[Ids, Ids]:
    """
    Draw row groups into pools: the groups, pool after pool, and the bounds of the pools.

    The groups are cut into stretches of as many as there are pools, and of each stretch every
    pool gets one. Where the first stretch begins differs from epoch to epoch.
    """
    turned = (np.arange(groups, dtype=np.int64) + mixed_key(key) % groups) % groups
    stretch = np.arange(groups, dtype=np.int64) // pools
    shuffled = turned[np.lexsort((_keys(groups, key), stretch))]
    pool = np.arange(groups, dtype=np.int64) % pools
    return shuffled[np.argsort(pool, kind="stable")], running_sums(np.bincount(pool))


def take_rows(pools: Pools, start: int, stop: int, rows_of: Callable[[int], Ids]) -> Selection:
    """
    Rows from one or more pools.

    Args:
        rows_of: Gives all rows of a pool, in their order.
    """
    parts = [rows_of(index)[begin:end] for index, begin, end in overlaps(pools.starts, start, stop)]
    if len(parts) == 1:
        return Selection(parts[0])
    return Selection(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


def overlaps(bounds: Ids, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """
    Cut a range where one part ends and the next begins.

    Args:
        bounds: Where each part begins, and where the last one ends.

    Yields:
        Number of a part, and the range of it, counted from its own beginning.
    """
    index = int(np.searchsorted(bounds, start, side="right")) - 1
    while start < stop:
        begin, end = int(bounds[index]), min(int(bounds[index + 1]), stop)
        if start < end:
            yield index, start - begin, end - begin
        start, index = end, index + 1


def permutation(length: int, key: int, number: int) -> Ids:
    """The permutation of a number, among those of a key."""
    return np.argsort(_keys(length, mixed_key(key ^ (number + 1))))


def mixed_key(value: int) -> int:
    """A key that tells nothing of the value."""
    return int(mixed_keys(np.array([value % 2**64], dtype=np.uint64))[0])


def _keys(length: int, key: int) -> Keys:
    return mixed_keys(np.arange(length, dtype=np.uint64) ^ np.uint64(key))


def mixed_keys(values: Keys) -> Keys:
    """A key for each value: SplitMix64's step and output function; wraps around by intent."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
