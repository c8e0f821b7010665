"""The data sets of a job as its ranks read them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from footplate.data.shared_folder import remove_unused, used
from footplate.data.source import CacheFolder, DataSource
from footplate.spec import CACHE_VARIABLE, Cache, Dataset, Job, parse_quantity
from footplate.store import DataVersion, Store
from footplate.train.mapping import MapSteps

__all__ = ["cache_folder", "data_sources"]

# Of the space that a cache's volume has: an emptyDir that exceeds its limit costs the pod.
_USABLE = 0.9
# Ray's objects are in the same memory: most of it stays theirs.
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_SHARED_PART = 0.25
_PREFIX = "footplate-rows-"


def data_sources(
    job: Job,
    versions: Mapping[str, DataVersion],
    cache: CacheFolder | None,
    record: str | None = None,
    *,
    ranks_on_node: int = 1,
) -> dict[str, DataSource]:
    """
    Where each data set of a job is read from, by its name.

    Args:
        job: With paths of this node.
        versions: Of the parts, by the names they are recorded under.
        cache: Of this node.
        record: Of the run, as JSON: with it the code is fetched where there is none yet.
        ranks_on_node: With one, what no tasks read is not kept for others, as there are none.
    """
    is_for_all = cache is None or not cache.is_temporary or ranks_on_node > 1
    return {
        name: _source(
            job,
            dataset,
            [versions[part] for part in dataset.named_parts(name)],
            cache if is_for_all or dataset.map else None,
            record,
        )
        for name, dataset in job.data.items()
    }


def _source(
    job: Job,
    dataset: Dataset,
    versions: list[DataVersion],
    cache: CacheFolder | None,
    record: str | None,
) -> DataSource:
    return DataSource(
        manifests=tuple(version.manifest for version in versions),
        weights=dataset.weights,
        columns=dataset.columns,
        endpoint=job.store.endpoint,
        region=job.store.region,
        seed=job.seed,
        shuffle=dataset.shuffle,
        pool=dataset.pool,
        pack=dataset.pack,
        bucket=dataset.bucket,
        skip_rows=dataset.skip_rows,
        cache=cache,
        transform=MapSteps(dataset.map, job.path(job.code), record) if dataset.map else None,
    )


@contextmanager
def cache_folder(
    cache: Cache | None, store: Store, *, run: str, ranks_on_node: int, is_mapped: bool
) -> Iterator[CacheFolder | None]:
    """
    Where the ranks of this node, and tasks that work for them, keep row groups that they have read.

    The cache that the spec asks for; without one, those who share a node share memory for as
    long as one of the ranks lives; a rank that is alone, without tasks, has nobody to share with.
    What ranks read where it lies, in files of the node, is in no cache.

    Args:
        run: Identifies the run on this node.
        is_mapped: Whether there are tasks.
    """
    if cache is not None:
        folder = os.environ.get(CACHE_VARIABLE) or _local_folder(store)
        yield CacheFolder(
            folder=folder, limit_bytes=int(float(parse_quantity(cache.size)) * _USABLE)
        )
    elif ranks_on_node > 1 or is_mapped:
        with _shared_memory(run) as shared:
            yield shared
    else:
        yield None


def _local_folder(store: Store) -> str:
    beside = store.folder.parent if store.folder else Path(tempfile.gettempdir()) / "footplate"
    return str(beside / "cache")


@contextmanager
def _shared_memory(run: str) -> Iterator[CacheFolder | None]:
    """
    A folder in memory that goes with the last process that uses it.

    What a killed run left stays until the next one on the same machine, which removes it; so does
    what a task left that was killed after the last rank had gone.
    """
    available = _free(_SHARED_MEMORY)
    if available is None:
        yield None
        return
    for other in _SHARED_MEMORY.glob(f"{_PREFIX}*"):
        remove_unused(other.with_suffix(""))
    folder = _SHARED_MEMORY / f"{_PREFIX}{run}"
    with used(folder):
        limit = int(available * _SHARED_PART)
        yield CacheFolder(folder=str(folder), limit_bytes=limit, is_temporary=True)


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
