"""
Length bucketing: samples of similar length follow each other, so that padding wastes little.

Inside a pool samples are sorted by length and cut into runs; the runs are permuted, and so are
the samples of each run. What does not fill a run comes last in its pool: a run of any length,
drawn anew each time, so that no length is favoured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from footplate.data.order import (
    POOLS_KEPT,
    ShuffledOrder,
    mixed_key,
    permutation,
    take_rows,
)
from footplate.data.selection import Ids, Selection

__all__ = ["BucketedOrder"]


class BucketedOrder:
    """
    All rows of a data set, once in every epoch, in runs of similar length.

    Args:
        order: What is put into runs, pool by pool.
        bucket: Samples of a run.
        lengths_of: Gives the length of each row of a row group, as stored.

    Attributes:
        rows: Samples of an epoch.
    """

    def __init__(
        self, order: ShuffledOrder, *, bucket: int, lengths_of: Callable[[int], Ids]
    ) -> None:
        self._order = order
        self._bucket = bucket
        self.rows = order.rows
        self._lengths_of = lengths_of
        self._rows_of_pool = lru_cache(POOLS_KEPT)(self._rows_of)

    def take(self, epoch: int, start: int, stop: int) -> Selection:
        """The samples at positions ``start`` to ``stop`` (exclusive) of an epoch."""
        pools = self._order.pools(epoch)
        return take_rows(pools, start, stop, partial(self._rows_of_pool, epoch))

    def _rows_of(self, epoch: int, index: int) -> Ids:
        order = self._order
        rows, lengths = order.with_lengths(epoch, index, self._lengths_of)
        runs, rest = divmod(len(rows), self._bucket)
        places = np.arange(runs + 1)
        if order.shuffle:
            key = mixed_key(~order.pools(epoch).key)
            places = permutation(runs + 1, key, index)
        # Of the runs by length, the one that comes last has what does not fill a run.
        sizes = np.where(places == runs, rest, self._bucket)
        place = np.empty(len(rows), dtype=np.int64)
        # Both sorts are stable: equals stay as the order shuffled them.
        place[np.argsort(lengths, kind="stable")] = np.repeat(places, sizes)
        return rows[np.argsort(place, kind="stable")]
