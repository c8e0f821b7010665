"""Samples by number, out of the row groups of the files of one or several manifests."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import xxhash

from footplate.data.manifest import DataManifest, SchemaField
from footplate.data.mapped_files import Views
from footplate.data.node_cache import NodeCache
from footplate.data.row_groups import RowGroupFiles
from footplate.data.schema import schema_difference
from footplate.data.selection import Ids, running_sums
from footplate.data.skipping import SkipBudget
from footplate.data.threads import at_once
from footplate.errors import DataError
from footplate.store import Store
from footplate.store.patience import Patience

__all__ = ["RowGroupReader"]

# Of row groups that are mostly asked for again soon, by the next task of the same pool or once
# their lengths are known; and of such lengths.
_KEPT_BYTES = 128 << 20
_LENGTHS_BYTES = 32 << 20


class RowGroupReader:
    """
    Random access to row groups; for many threads at once.

    Row groups are numbered over all files of all parts, and so are rows.

    Args:
        parts: Manifests of one schema, and the stores of the folders that their files are
            relative to.
        columns: What to read, or None for all.
        cache: Shared with the other processes of the node.
        skipping: How much of it may be replaced because it is damaged.

    Attributes:
        is_remote: Whether it takes time until a store answers.
        largest: Bytes of the row group with the most rows in memory, about.
        most_rows: Rows of that.

    Raises:
        DataError: If there is no such column, or the schemas differ.
    """

    def __init__(
        self,
        parts: Sequence[tuple[DataManifest, Store]],
        columns: Sequence[str] | None = None,
        *,
        cache: NodeCache | None = None,
        patience: Patience | None = None,
        skipping: SkipBudget | None = None,
    ) -> None:
        manifests = [manifest for manifest, _ in parts]
        self._fields = _fields(manifests, columns)
        names = list(self._fields)
        self._files = [
            RowGroupFiles(manifest, store, names, patience or Patience())
            for manifest, store in parts
        ]
        self._first_groups = running_sums(_sizes([manifest.group_rows for manifest in manifests]))
        self._rows = np.array(
            [rows for manifest in manifests for rows in manifest.group_rows], dtype=np.int64
        )
        self._row_starts = running_sums(self._rows)
        self._cache = cache
        columns_digest = xxhash.xxh3_64_hexdigest("\n".join(names).encode())
        self._keys = [f"{manifest.version}-{columns_digest}" for manifest in manifests]
        self._skipping = skipping or SkipBudget(0)
        self._kept: OrderedDict[int, pyarrow.Table] = OrderedDict()
        self._lengths: OrderedDict[tuple[int, str], Ids] = OrderedDict()
        self._lock = threading.Lock()
        largest = int(np.argmax(self._rows))
        self.largest = max(self.size(largest), 1)
        self.most_rows = int(self._rows[largest])
        self._row_size = max(self.largest // self.most_rows, 1)
        self.is_remote = any(store.folder is None for _, store in parts)

    @property
    def fields(self) -> Mapping[str, SchemaField]:
        """The columns that are read, by name."""
        return self._fields

    @property
    def skipped(self) -> Mapping[str, int]:
        """Rows of the row groups that were replaced so far, by their names."""
        return self._skipping.skipped

    @property
    def row_size(self) -> int:
        """Bytes of a row in memory, about."""
        return self._row_size

    def name(self, group: int) -> str:
        """What a row group is called in messages."""
        files, number = self._place(group)
        return files.name(number)

    def size(self, group: int) -> int:
        """Bytes of a row group in memory, about."""
        files, number = self._place(group)
        return files.size(number)

    def locate(self, ids: Ids) -> tuple[Ids, Ids]:
        """The row group of each row, and its number in there."""
        groups = np.searchsorted(self._row_starts, ids, side="right") - 1
        return groups, ids - self._row_starts[groups]

    def read(
        self,
        group: int,
        stopped: threading.Event | None = None,
        views: Views | None = None,
    ) -> pyarrow.Table:
        """
        A row group, as many rows as the manifest says.

        One that cannot be read is replaced by the next one of its manifest that can, its rows
        again and again: that depends on nothing but the data, so all ranks agree, and so does
        who resumes.

        Args:
            stopped: Set when nobody waits for it any more.
            views: If there are any, it may be a view of a file, which is added to these and
                which others may change: who reads copies at once what is needed, and asks these
                then whether that is what was read.

        Raises:
            DataError: If it cannot be read, and no more may be replaced.
            StoreError: If the store fails for too long, or refuses.
            ReadingStopped: If ``stopped`` was set.
        """
        with self._lock:
            # Whoever reads by this keeps the row group as long as it needs it.
            kept = self._kept.pop(group, None)
        if kept is not None:
            return kept
        stopped = stopped or threading.Event()
        part = self._part(group)
        first, last = int(self._first_groups[part]), int(self._first_groups[part + 1])
        for candidate in itertools.chain(range(group, last), range(first, group)):
            try:
                table = self._read(part, candidate - first, stopped, views)
            except DataError as error:
                self._skipping.spend(self.name(candidate), int(self._rows[candidate]), error)
                damage = error
                continue
            if candidate == group:
                return table
            if table.num_rows:
                return table.take(np.arange(self._rows[group]) % table.num_rows)
        raise DataError(f"no row group can be read: {damage.message}", damage.hint)

    def read_all(self, groups: Sequence[int]) -> list[pyarrow.Table]:
        """
        Several row groups at once, of which some are kept for who asks next.

        Raises:
            DataError: As for one.
            StoreError: Likewise.
        """
        if self.is_remote:
            return at_once(self._read_and_keep, groups)
        return list(map(self._read_and_keep, groups))

    def lengths(self, group: int, column: str) -> Ids:
        """
        How many values each row of a row group has in a column of lists.

        Raises:
            DataError: As for reading, or if the column has no lists.
        """
        with self._lock:
            if (group, column) in self._lengths:
                return self._lengths[group, column]
        table = self._read_and_keep(group)
        try:
            counted = pyarrow.compute.list_value_length(table.column(column))
        except pyarrow.ArrowException as error:
            raise DataError(f"column {column} has no lists: {error}") from error
        lengths: Ids = counted.fill_null(0).to_numpy().astype(np.int64)
        with self._lock:
            self._lengths[group, column] = lengths
            _limit(self._lengths, _LENGTHS_BYTES)
        return lengths

    def _part(self, group: int) -> int:
        return int(np.searchsorted(self._first_groups, group, side="right")) - 1

    def _place(self, group: int) -> tuple[RowGroupFiles, int]:
        """The files that a row group is in, and its number among theirs."""
        part = self._part(group)
        return self._files[part], group - int(self._first_groups[part])

    def _read(
        self, part: int, group: int, stopped: threading.Event, views: Views | None
    ) -> pyarrow.Table:
        files = self._files[part]
        # What is at hand the kernel keeps for all processes already, and as it is needed.
        if self._cache is None or (views is not None and files.is_at_hand(group)):
            return files.read(group, stopped, views)
        key = f"{self._keys[part]}-{group:06d}"
        return self._cache.get(key, lambda: files.read(group, stopped), stopped)

    def _read_and_keep(self, group: int) -> pyarrow.Table:
        table = self.read(group)
        with self._lock:
            self._kept[group] = table
            _limit(self._kept, _KEPT_BYTES)
        return table


def _limit(kept: OrderedDict[Any, Any], limit_bytes: int) -> None:
    """Let go of what was not used for longest."""
    taken = sum(each.nbytes for each in kept.values())
    while taken > limit_bytes:
        taken -= kept.popitem(last=False)[1].nbytes


def _sizes(parts: Sequence[Sequence[object] | pyarrow.Table]) -> Ids:
    return np.array([len(part) for part in parts], dtype=np.int64)


def _fields(
    manifests: Sequence[DataManifest], columns: Sequence[str] | None
) -> dict[str, SchemaField]:
    first = manifests[0]
    for other in manifests[1:]:
        if difference := schema_difference(first.fields, other.fields):
            raise DataError(f"data set {other.name} differs from {first.name} in {difference}")
    fields = {field.name: field for field in first.fields}
    if unknown := [name for name in columns or () if name not in fields]:
        raise DataError(
            f"data set {first.name} has no column {', '.join(unknown)}",
            f"Its columns are {', '.join(fields)}.",
        )
    return {name: fields[name] for name in columns} if columns is not None else fields
