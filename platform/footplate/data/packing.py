"""
Token packing: documents joined in the order of the epoch and cut into sequences of one length.

An epoch is one long line of values: the documents (rows), pool after pool, each where its own
order puts it. Sequence i is the values from ``i * length`` on, so a sequence may end inside a
document and the next one goes on there, also where one pool ends and the next begins. Less than
one sequence is left over in an epoch, and every epoch has as many sequences: where pools begin
in the line follows from the manifest's counts, and only the pool in question is looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from footplate.data.order import POOLS_KEPT, ShuffledOrder, overlaps
from footplate.data.selection import Ids, Selection, running_sums
from footplate.errors import DataError

__all__ = ["PackedOrder"]


@dataclass(frozen=True, eq=False, slots=True)
class _Documents:
    """Consecutive documents, without empty ones: row and first value of each in the line."""

    ids: Ids
    begins: Ids

    def between(self, begin: int, end: int) -> _Documents:
        """Those with values between ``begin``, which is not before the first, and ``end``."""
        first = int(np.searchsorted(self.begins, begin, side="right")) - 1
        last = int(np.searchsorted(self.begins, end, side="left"))
        return _Documents(self.ids[first:last], self.begins[first:last])


class PackedOrder:
    """
    Sequences of equal length.

    Args:
        order: Of the documents.
        length: Values of a sequence.
        group_values: Values of all documents of each row group, in the order of the manifest.
        lengths_of: Gives the number of values of each row of a row group, as stored.

    Attributes:
        rows: Sequences of an epoch.
    """

    def __init__(
        self,
        order: ShuffledOrder,
        *,
        length: int,
        group_values: Sequence[int],
        lengths_of: Callable[[int], Ids],
    ) -> None:
        self._order = order
        self._length = length
        self._values = np.asarray(group_values, dtype=np.int64)
        self.rows = int(self._values.sum()) // length
        self._lengths_of = lengths_of
        self._pool_starts = lru_cache(POOLS_KEPT)(self._starts)
        self._documents_of_pool = lru_cache(POOLS_KEPT)(self._documents_of)

    def take(self, epoch: int, start: int, stop: int) -> Selection:
        """The sequences ``start`` to ``stop`` (exclusive) of an epoch."""
        begin, end = start * self._length, stop * self._length
        documents = self._documents(epoch, begin, end)
        sequences = np.arange(begin, end, self._length, dtype=np.int64)
        # A piece begins where a document or a sequence does, and ends where the next one begins.
        firsts = np.union1d(np.maximum(documents.begins, begin), sequences)
        stops = np.append(firsts, end)[1:]
        number = np.searchsorted(documents.begins, firsts, side="right") - 1
        offsets = np.append(np.searchsorted(firsts, sequences), len(firsts))
        document_begins = documents.begins[number]
        return Selection(
            documents.ids[number], offsets, firsts - document_begins, stops - document_begins
        )

    def _documents(self, epoch: int, begin: int, end: int) -> _Documents:
        """The documents that have values from ``begin`` to ``end`` of the line."""
        starts = self._pool_starts(epoch)
        parts = [_Documents(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
        for index, first, last in overlaps(starts, begin, end):
            pool_start = int(starts[index])
            documents = self._documents_of_pool(epoch, index)
            parts.append(documents.between(pool_start + first, pool_start + last))
        return _Documents(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.begins for part in parts]),
        )

    def _starts(self, epoch: int) -> Ids:
        """Where each pool begins in the line of an epoch, and where the last one ends."""
        pools = self._order.pools(epoch)
        return running_sums(self._values[pools.groups])[pools.bounds]

    def _documents_of(self, epoch: int, index: int) -> _Documents:
        starts = self._pool_starts(epoch)
        ids, lengths = self._order.with_lengths(epoch, index, self._lengths_of)
        begins = starts[index] + running_sums(lengths)
        if begins[-1] != starts[index + 1]:
            raise DataError(
                f"lists that should hold {starts[index + 1] - starts[index]} numbers hold "
                f"{begins[-1] - starts[index]}",
                "There are nulls in them, which a manifest does not count. Fill or remove them "
                "when the data set is prepared.",
            )
        return _Documents(ids[lengths > 0], begins[:-1][lengths > 0])
