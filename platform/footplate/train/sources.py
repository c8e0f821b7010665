"""The data sets of a job as its ranks read them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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
    job: Job, versions: Mapping[str, DataVersion], cache: CacheFolder | None
) -> dict[str, DataSource]:
    """
    Where each data set of a job is read from, by its name.

    Args:
        job: With paths of this node.
        versions: Of the parts, by the names they are recorded under.
        cache: Of this node.
    """
    return {
        name: _source(job, dataset, [versions[part] for part in dataset.named_parts(name)], cache)
        for name, dataset in job.data.items()
    }


def _source(
    job: Job, dataset: Dataset, versions: list[DataVersion], cache: CacheFolder | None
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
        transform=MapSteps(dataset.map, job.path(job.code)) if dataset.map else None,
    )


@contextmanager
def cache_folder(
    cache: Cache | None, store: Store, *, run: str, ranks_on_node: int
) -> Iterator[CacheFolder | None]:
    """
    Where the ranks of this node keep row groups that they have read.

    The cache that the spec asks for; without one, ranks that share a node share memory for as
    long as one of them lives; a rank that is alone has nobody to share with.

    Args:
        run: Identifies the run on this node.
    """
    if cache is not None:
        folder = os.environ.get(CACHE_VARIABLE) or _local_folder(store)
        yield CacheFolder(
            folder=folder, limit_bytes=int(float(parse_quantity(cache.size)) * _USABLE)
        )
    elif ranks_on_node > 1:
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

    What a killed run left is removed by the next one on the same machine.
    """
    try:
        available = shutil.disk_usage(_SHARED_MEMORY).free
    except OSError:
        yield None
        return
    for other in _SHARED_MEMORY.glob(f"{_PREFIX}*"):
        _remove_unused(other.with_suffix(".lock"))
    lock = _SHARED_MEMORY / f"{_PREFIX}{run}.lock"
    try:
        with _held(lock):
            folder = str(lock.with_suffix(""))
            yield CacheFolder(folder=folder, limit_bytes=int(available * _SHARED_PART))
    finally:
        _remove_unused(lock)


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Hold a lock together with others; whoever removes its file holds it alone."""
    while True:
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if _is_at(lock, file):
                yield
                return


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether an open file still is the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _remove_unused(lock: Path) -> None:
    try:
        with lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(lock, held):
                return  # somebody else was faster, and perhaps begins anew
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    except OSError:
        return  # in use, or somebody else's
