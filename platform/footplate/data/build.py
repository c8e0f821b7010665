"""
Building a data set: Parquet files and the manifest beside them, as a preparation describes it.

All that is made is kept in the folder that the data set will be, piece by piece: what was finished
when a build ended, however it ended, is not made again. The manifest appears last, and with it the
data set. Every piece depends on the preparation alone, so the result is the same, byte by byte,
whoever made which piece, on how many CPUs, in how many attempts.

The module needs pyarrow, so nothing of the client imports it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from footplate.data.create import combined, is_manifest_of
from footplate.data.describe import Described
from footplate.data.files import PlannedFile, planned_files, write_file
from footplate.data.preparation import Preparation
from footplate.data.schema import schema_difference
from footplate.data.shards import WORK_FOLDER, Shaping, Shard, ShardRecord, make_shard, shards_of
from footplate.data.tasks import Tasks
from footplate.errors import DataError, ObjectNotFoundError, StoreError
from footplate.store import Store

__all__ = ["BuildProgress", "build"]

_THREADS = 16
# Samples that are written to files sooner than Ray would be started.
_LITTLE_BYTES = 128 << 20

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildProgress:
    """
    How far a build is.

    Attributes:
        stage: Items become samples first, then samples files.
        done: Items or samples, by the stage.
        total: Likewise.
        rows: Samples that were made.
        size: Bytes of them in memory, or of the files.
    """

    stage: Literal["transforming", "writing"]
    done: int
    total: int
    rows: int
    size: int


def build(
    preparation: Preparation,
    store: Store,
    *,
    key: JsonValue,
    folder: Path,
    ray_address: str = "local",
    on_progress: Callable[[BuildProgress], None] | None = None,
) -> str:
    """
    Build a data set, or find the one that was built from the same before.

    Of several processes that want the same one in a folder of this machine, one builds it while
    the others wait. In a bucket each would build it, to the same bytes.

    Args:
        store: Where data sets are kept; this one becomes ``<name>-<digest>`` in it.
        key: What the content depends on besides the items and sizes of the preparation.
        folder: Of the user's code, for its traceback and to let it travel.
        ray_address: Of the Ray to use if this process has none yet; ``local`` starts one.
        on_progress: Called again and again.

    Returns:
        The URI of the manifest.

    Raises:
        UserCodeError: If the user's function fails, naming the item.
        DataError: If there are no samples, or what the function returns can't be stored.
        StoreError: If the store fails.
        WorkerLostError: If Ray lost a task.
    """
    items = _items(preparation)
    name = f"{preparation.name}-{_digest(preparation, items, key)}"
    with _locked(store, name):
        place = Store(store.locate(name), endpoint=store.endpoint, region=store.region)
        if (found := _found(place, preparation.name)) is not None:
            with suppress(StoreError, OSError):  # who only reads it need not be allowed to
                _tidy_up(place)  # who made it may have been killed before that
            return found
        shaping = Shaping(
            transform=preparation.transform,
            folder=folder,
            store=place,
            rows_per_group=preparation.rows_per_group,
            compression=preparation.compression,
        )
        try:
            with Tasks(folder, ray_address) as tasks:
                attempt = _Attempt(preparation, shaping, tasks, on_progress or _tell_nobody)
                return attempt.make(items)
        except ObjectNotFoundError:
            # Who builds the same in a bucket may have been faster, and has tidied up.
            if (found := _found(place, preparation.name)) is not None:
                return found
            raise


class _Attempt:
    """Makes what is still missing of a data set."""

    def __init__(
        self,
        preparation: Preparation,
        shaping: Shaping,
        tasks: Tasks,
        tell: Callable[[BuildProgress], None],
    ) -> None:
        self._preparation = preparation
        self._shaping = shaping
        self._store = shaping.store
        self._tasks = tasks
        self._tell = tell

    def make(self, items: Sequence[JsonValue]) -> str:
        """Make all that is missing, and then the manifest; its URI."""
        there = {info.path for info in self._store.objects(WORK_FOLDER)}
        shards = self._shards(shards_of(items, self._preparation.items_per_shard), there)
        planned = planned_files(shards, self._preparation.rows_per_file)
        files = self._files(planned, there, sum(shard.size for shard in shards))
        manifest = combined(self._preparation.name, files, self._store)
        content = manifest.to_json()
        self._store.put_blocks(manifest.file_name, [memoryview(content)], len(content))
        self._store.sync(manifest.file_name)  # before what it is made of goes
        _tidy_up(self._store)
        return self._store.locate(manifest.file_name)

    def _shards(self, planned: Sequence[Shard], there: set[str]) -> list[ShardRecord]:
        total = sum(len(shard.items) for shard in planned)
        records = {shard.path: f"{shard.path}.json" for shard in planned}
        done = self._records(records, there, ShardRecord)
        missing = [shard for shard in planned if shard.path not in done]
        made = self._tasks.each(missing, partial(make_shard, self._shaping), ShardRecord)
        self._tell(_transformed(done.values(), total))
        for shard, record in zip(missing, made, strict=True):
            done[shard.path] = record
            self._tell(_transformed(done.values(), total))
        ordered = [done[shard.path] for shard in planned]
        _check(ordered)
        return ordered

    def _files(self, planned: Sequence[PlannedFile], there: set[str], size: int) -> list[Described]:
        total = sum(file.rows for file in planned)
        records = {file.path: file.record for file in planned}
        done = self._records(records, there, Described)
        missing = [file for file in planned if file.path not in done]
        made = self._tasks.each(
            missing,
            partial(write_file, self._shaping),
            Described,
            is_little=size <= _LITTLE_BYTES,
        )
        self._tell(_written(done.values(), total))
        for file, described in zip(missing, made, strict=True):
            done[file.path] = described
            self._tell(_written(done.values(), total))
        return [done[file.path] for file in planned]

    def _records(self, paths: dict[str, str], there: set[str], kind: type[R]) -> dict[str, R]:
        """What earlier attempts have finished."""
        finished = {path: record for path, record in paths.items() if record in there}
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            contents = list(pool.map(self._store.get, finished.values()))
        return {
            path: record
            for path, content in zip(finished, contents, strict=True)
            if (record := _record(kind, content)) is not None
        }


def _tidy_up(place: Store) -> None:
    """Remove all but the data set."""
    place.delete_folder(WORK_FOLDER)
    if place.folder is not None:
        # What a killed process was writing: nobody else is at work here, and no listing shows it.
        for leftover in place.folder.glob("*#*"):
            leftover.unlink()


def _record(kind: type[R], content: bytes) -> R | None:
    """None if another version wrote it, or the power went: then the piece is made again."""
    try:
        return kind.model_validate_json(content)
    except ValidationError:
        return None


def _items(preparation: Preparation) -> list[JsonValue]:
    items = list(preparation.source)
    for number, item in enumerate(items):
        try:
            is_kept = json.loads(json.dumps(item)) == item
        except (TypeError, ValueError):
            is_kept = False
        if not is_kept:
            raise DataError(
                f"item {number} of the source of {preparation.name} is {item!r}",
                "Items are texts, numbers, and lists and dictionaries of them, such as str(path).",
            )
    return items


def _digest(preparation: Preparation, items: Sequence[JsonValue], key: JsonValue) -> str:
    """Of all that the content depends on."""
    digest = hashlib.sha256()
    shape = [preparation.rows_per_group, preparation.rows_per_file, preparation.compression]
    for part in ([key, shape], *items):
        digest.update(json.dumps(part, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()[:16]


def _found(place: Store, data_set: str) -> str | None:
    """The manifest of a data set that is there."""
    manifests = [info.path for info in place.objects("") if is_manifest_of(data_set, info.path)]
    if len(manifests) > 1:
        raise DataError(
            f"{place.uri} holds {len(manifests)} data manifests, not one",
            "It was changed after it was built. Delete the folder: it is then built again.",
        )
    return place.locate(manifests[0]) if manifests else None


def _check(shards: Sequence[ShardRecord]) -> None:
    filled = [shard for shard in shards if shard.rows]
    if not filled:
        raise DataError("there are no samples to build a data set of")
    for shard in filled:
        if difference := schema_difference(filled[0].fields, shard.fields):
            raise DataError(
                f"what transform made of {shard.told} differs from {filled[0].told} in {difference}"
            )


def _transformed(shards: Iterable[ShardRecord], total: int) -> BuildProgress:
    done = list(shards)
    return BuildProgress(
        stage="transforming",
        done=sum(shard.items for shard in done),
        total=total,
        rows=sum(shard.rows for shard in done),
        size=sum(shard.size for shard in done),
    )


def _written(files: Iterable[Described], total: int) -> BuildProgress:
    done = [described.file for described in files]
    rows = sum(file.rows for file in done)
    size = sum(file.size for file in done)
    return BuildProgress(stage="writing", done=rows, total=total, rows=rows, size=size)


def _tell_nobody(progress: BuildProgress) -> None:
    pass


@contextmanager
def _locked(store: Store, name: str) -> Iterator[None]:
    """Keep other processes of this machine from the same folder; ends with the process, too."""
    if store.folder is None:
        yield
        return
    try:
        lock = (store.folder / f".{name}.lock").open("w")
    except OSError as error:
        raise StoreError(f"cannot write to {store.folder}: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
