"""Data sets as a run reads them: opened once a process, whichever process that is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial

import numpy as np
import numpy.typing as npt

from footplate.data.bucketing import BucketedOrder
from footplate.data.columns import Columns
from footplate.data.counting import epoch_samples, group_values
from footplate.data.manifest import DataManifest, read_manifest
from footplate.data.mixture import MixedOrder
from footplate.data.node_cache import NodeCache
from footplate.data.order import Order, ShuffledOrder
from footplate.data.packing import PackedOrder
from footplate.data.reader import RowGroupReader
from footplate.data.selection import Ids
from footplate.data.skipping import SkipBudget
from footplate.spec import Bucket, Pack
from footplate.store.patience import with_patience

__all__ = [
    "CacheFolder",
    "DataSource",
    "OpenedSource",
    "SampleKeys",
    "Transform",
    "opened",
    "skip_budget",
]

SampleKeys = npt.NDArray[np.uint64]
"""A number for each sample, a function of seed, epoch and place in the epoch alone."""

Transform = Callable[[Columns, SampleKeys], Columns]


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFolder:
    """
    Where the processes of a node keep row groups that they have read.

    Attributes:
        folder: Of this node.
        limit_bytes: The least used make room beyond it.
        is_temporary: Whether it goes with the last process that uses it, so that others must
            say when they do (see :mod:`footplate.data.shared_folder`).
    """

    folder: str
    limit_bytes: int
    is_temporary: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource:
    """
    Where samples are read from and in which order; small, since it is sent to other processes.

    Attributes:
        manifests: URIs (or absolute file names) of the manifests; several are a mixture.
        weights: Of the parts of the mixture.
        columns: What to read, or None for all.
        endpoint: Of an S3-compatible server.
        region: Of the bucket.
        seed: Of the job.
        shuffle: False is the order of the manifest.
        pool: Row groups that are shuffled together.
        pack: Documents joined and cut into sequences, which then are the samples.
        bucket: Samples of similar length together.
        skip_rows: Rows that may be replaced because their row group is corrupt.
        cache: Shared by the processes of a node, if there is one.
        transform: What Ray Data's tasks apply to the samples; hashable, and can be pickled.
    """

    manifests: tuple[str, ...]
    weights: tuple[float, ...] = (1.0,)
    columns: tuple[str, ...] | None = None
    endpoint: str | None = None
    region: str | None = None
    seed: int = 0
    shuffle: bool = True
    pool: int = 8
    pack: Pack | None = None
    bucket: Bucket | None = None
    skip_rows: int = 0
    cache: CacheFolder | None = None
    transform: Transform | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedSource:
    """
    What a process needs to plan and to read.

    Attributes:
        manifests: Of the parts.
        order: Of the samples of every epoch.
        reader: Of their row groups.
    """

    manifests: tuple[DataManifest, ...]
    order: Order
    reader: RowGroupReader

    @property
    def sample_size(self) -> int:
        """Bytes of a sample, about."""
        return max(manifest.sample_size for manifest in self.manifests)


@lru_cache(maxsize=16)
def opened(source: DataSource) -> OpenedSource:
    """
    Open a source, once a process.

    Raises:
        DataError: If a manifest is missing or malformed, or the parts differ in their columns.
        StoreError: If the store fails or refuses.
    """
    read = [
        with_patience(partial(read_manifest, uri, endpoint=source.endpoint, region=source.region))
        for uri in source.manifests
    ]
    manifests = tuple(manifest for manifest, _ in read)
    cache = source.cache
    reader = RowGroupReader(
        read,
        source.columns,
        cache=NodeCache(cache.folder, cache.limit_bytes) if cache else None,
        skipping=skip_budget(source),
    )
    return OpenedSource(manifests=manifests, order=_order(source, manifests, reader), reader=reader)


def skip_budget(source: DataSource) -> SkipBudget:
    """What may be replaced of a data set, and was in this process, in whatever order it is read."""
    return _skip_budget(source.manifests, source.endpoint, source.skip_rows)


@cache
def _skip_budget(manifests: tuple[str, ...], endpoint: str | None, rows: int) -> SkipBudget:
    return SkipBudget(rows, on_skip=_tell_skipped)


def _tell_skipped(name: str, rows: int) -> None:
    print(f"{name} cannot be read: others stand in for its {rows} rows", file=sys.stderr)  # noqa: T201


def _order(source: DataSource, manifests: Sequence[DataManifest], reader: RowGroupReader) -> Order:
    """Of the whole; without weights one part follows the other."""
    if not source.weights or len(manifests) == 1:
        return _order_of_part(source, manifests, reader, first_row=0, first_group=0)
    parts: list[Order] = []
    first_row = first_group = 0
    for manifest in manifests:
        parts.append(
            _order_of_part(source, [manifest], reader, first_row=first_row, first_group=first_group)
        )
        first_row += manifest.rows
        first_group += len(manifest.group_rows)
    return MixedOrder(parts, source.weights, seed=source.seed)


def _order_of_part(
    source: DataSource,
    manifests: Sequence[DataManifest],
    reader: RowGroupReader,
    *,
    first_row: int,
    first_group: int,
) -> Order:
    order = ShuffledOrder(
        [rows for manifest in manifests for rows in manifest.group_rows],
        seed=source.seed,
        shuffle=source.shuffle,
        pool=source.pool,
        first_row=first_row,
    )

    def lengths_of(group: int) -> Ids:
        section = source.pack or source.bucket
        assert section is not None
        return reader.lengths(first_group + group, section.column)

    if source.pack is not None:
        epoch_samples(manifests, source.pack)  # refuses what has not even one sequence
        values = [count for each in manifests for count in group_values(each, source.pack.column)]
        return PackedOrder(
            order, length=source.pack.length, group_values=values, lengths_of=lengths_of
        )
    if source.bucket is not None:
        return BucketedOrder(order, bucket=source.bucket.samples, lengths_of=lengths_of)
    return order
