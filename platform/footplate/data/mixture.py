"""
Mixtures: several orders as one, by weights.

A mixture is one endless line of samples, cut into blocks. How many samples each part has in the
first n blocks follows from the weights by division of whole numbers, and which part comes where
in a block is a permutation of its own. So what comes at a position is known without what came
before, and is the same on every machine. Each part goes through its own epochs endlessly,
whatever the epoch of the mixture: one with much weight begins anew early, one with little weight
is still in its first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from footplate.data.order import Order, mixed_key, permutation
from footplate.data.selection import Ids, Selection

__all__ = ["MixedOrder"]

_BLOCK = 1024
_BLOCKS_KEPT = 2


class MixedOrder:
    """
    A mixture of orders.

    Args:
        parts: Orders of row ids that do not overlap, none without samples; all of rows, or all
            packed.
        weights: Positive; the share of a part is its weight among all of them.
        seed: Of the job.

    Attributes:
        rows: Samples of an epoch: as many as one epoch of each part, whatever the weights.
    """

    def __init__(self, parts: Sequence[Order], weights: Sequence[float], *, seed: int) -> None:
        assert len(parts) == len(weights) > 0
        assert min(weights) > 0
        assert all(part.rows for part in parts)
        self._parts = tuple(parts)
        self.rows = sum(part.rows for part in parts)
        self._weights = _whole_numbers(weights)
        self._key = mixed_key(~mixed_key(seed))
        self._parts_in_block = lru_cache(_BLOCKS_KEPT)(self._parts_in)

    def take(self, epoch: int, start: int, stop: int) -> Selection:
        """The samples at positions ``start`` to ``stop`` (exclusive) of an epoch."""
        if start == stop:
            return self._parts[0].take(0, 0, 0)
        first, last = (epoch * self.rows + offset for offset in (start, stop))
        blocks = range(first // _BLOCK, -(-last // _BLOCK))
        part_at = np.concatenate([self._parts_in_block(block) for block in blocks])
        skipped = first - blocks.start * _BLOCK
        before, wanted = part_at[:skipped], part_at[skipped : skipped + stop - start]
        begun = _shares(blocks.start * _BLOCK, self._weights)
        samples, places = [], []
        for number, part in enumerate(self._parts):
            places.append(np.flatnonzero(wanted == number))
            begin = begun[number] + int(np.count_nonzero(before == number))
            samples.append(_take_endless(part, begin, begin + len(places[-1])))
        # Sorting the places turns "part after part" into "as they come".
        return Selection.concatenated(samples).picked(np.argsort(np.concatenate(places)))

    def _parts_in(self, block: int) -> Ids:
        """Which part comes at each position of a block."""
        begun, done = (_shares(number * _BLOCK, self._weights) for number in (block, block + 1))
        counts = [end - begin for begin, end in zip(begun, done, strict=True)]
        parts = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        return parts[permutation(_BLOCK, self._key, block)]


def _take_endless(order: Order, start: int, stop: int) -> Selection:
    """Samples of the epochs of an order, one after the other."""
    parts: list[Selection] = []
    while start < stop:
        epoch, begin = divmod(start, order.rows)
        end = min(begin + stop - start, order.rows)
        parts.append(order.take(epoch, begin, end))
        start += end - begin
    return Selection.concatenated(parts) if parts else order.take(0, 0, 0)


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """
    Divide samples by weights.

    Each part in turn gets its share of what the ones before it left, rounded down; the last one
    gets the rest. So no share ever shrinks when the total grows, and each is off by less than a
    sample for every part.
    """
    shares = []
    remaining, remaining_weight = total, sum(weights)
    for weight in weights:
        share = remaining * weight // remaining_weight
        shares.append(share)
        remaining, remaining_weight = remaining - share, remaining_weight - weight
    return shares


def _whole_numbers(weights: Sequence[float]) -> list[int]:
    """Whole numbers in the ratio of the weights, taken as they are written in decimals."""
    ratios = [Fraction(str(weight)) for weight in weights]
    common = math.lcm(*(ratio.denominator for ratio in ratios))
    return [int(ratio * common) for ratio in ratios]
