"""
Making the manifest of Parquet files that are there already.

Files are read in parallel. What is known of them is kept beside them until the manifest is
written: whoever is interrupted runs the same again, and only files that are new or have changed
since are read. The manifest appears last, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from footplate.data.describe import Described, describe_file
from footplate.data.footer import Footer, read_footer
from footplate.data.manifest import DataManifest, SchemaField, check_name
from footplate.data.notes import Notes
from footplate.data.progress import ReadProgress
from footplate.data.schema import schema_difference
from footplate.data.threads import reading_threads
from footplate.errors import DataError, ObjectExistsError, ObjectNotFoundError
from footplate.store import ObjectInfo, Store

__all__ = ["Created", "combined", "create_manifest", "is_manifest_of"]

# Files that are read at the same time: each takes a block of 8 MiB of memory.
_THREADS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Created:
    """
    A manifest that was written, or found to be there.

    Attributes:
        uri: Of the manifest.
        manifest: Its content.
        is_new: False if the data set was described before and is the same.
        earlier: File names of other manifests of this data set.
        known: Files that an interrupted run had read already.
    """

    uri: str
    manifest: DataManifest
    is_new: bool
    earlier: tuple[str, ...]
    known: int


def create_manifest(
    uri: str,
    *,
    name: str,
    endpoint: str | None = None,
    region: str | None = None,
    progress: ReadProgress | None = None,
) -> Created:
    """
    Describe all Parquet files below a folder, in the order of their paths.

    Files and folders whose names begin with a dot or an underscore are left out: that is where
    other programs put what is no data.

    Args:
        uri: Absolute path or URI of the folder; the manifest is written into it.
        name: Of the data set.
        endpoint: Of an S3-compatible server.
        region: Of the bucket.
        progress: Hears how far it is.

    Raises:
        DataError: If there are no such files or no rows, or a file cannot be read or has another
            schema than the first.
        StoreError: If the store fails.
    """
    check_name(name)
    store = _opened(uri, endpoint, region)
    objects = store.objects("")
    files = [info for info in objects if _is_data(info.path)]
    if not files:
        raise DataError(
            f"there are no Parquet files below {store.uri}",
            "Names that end in .parquet count, but for those that begin with a dot or underscore.",
        )
    notes = Notes(store, objects)
    with notes.kept():
        described = _described(store, files, notes, progress or ReadProgress())
        _check_unchanged(store, files)
        manifest = combined(name, described, store)
    file_name = manifest.file_name
    _write(store, manifest)
    notes.remove()
    manifests = {info.path for info in objects if is_manifest_of(name, info.path)}
    return Created(
        uri=store.locate(file_name),
        manifest=manifest,
        is_new=file_name not in manifests,
        earlier=tuple(sorted(manifests - {file_name})),
        known=notes.used,
    )


def _write(store: Store, manifest: DataManifest) -> None:
    content = manifest.to_json()
    try:
        store.create(manifest.file_name, content)
    except ObjectExistsError:
        # Another content under that name is a damaged manifest: the name tells what it was.
        store.put(manifest.file_name, content)


def _opened(uri: str, endpoint: str | None, region: str | None) -> Store:
    try:
        return Store(uri, endpoint=endpoint, region=region, create=False)
    except ObjectNotFoundError as error:
        raise DataError(f"there is no folder {uri}") from error


def _is_data(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return path.endswith(".parquet") and not any(part.startswith((".", "_")) for part in parts)


def is_manifest_of(name: str, path: str) -> bool:
    """Whether a file in a folder is a manifest of the data set of that name."""
    stem, _, version = path.removesuffix(".json").rpartition("-")
    return path.endswith(".json") and stem == name and len(version) == 16


def combined(name: str, described: Sequence[Described], store: Store) -> DataManifest:
    """
    The manifest of some files, in their order.

    Raises:
        DataError: If they differ in their schema, or have no rows.
    """
    first = described[0]
    for found in described:
        if difference := schema_difference(first.fields, found.fields):
            raise _differs(store, found.file.path, first.file.path, difference)
    manifest = DataManifest(
        name=name,
        fields=tuple(_summary(index, described) for index in range(len(first.fields))),
        files=tuple(found.file for found in described),
    )
    if not manifest.rows:
        raise DataError(f"the Parquet files below {store.uri} have no rows")
    return manifest


def _summary(index: int, described: Sequence[Described]) -> SchemaField:
    """One column over all files; what one of them does not tell is not known."""
    columns = [found.fields[index] for found in described]
    nulls = [column.nulls for column in columns]
    # Where there is nothing but nulls there are no extremes.
    filled = [found.fields[index] for found in described if _has_values(found, index)]
    minima: list[Any] = [column.minimum for column in filled]
    maxima: list[Any] = [column.maximum for column in filled]
    known = bool(filled) and None not in minima
    return columns[0].model_copy(
        update={
            "nulls": None if None in nulls else sum(nulls),
            "minimum": min(minima) if known else None,
            "maximum": max(maxima) if known else None,
        }
    )


def _has_values(found: Described, index: int) -> bool:
    return found.fields[index].nulls != found.file.rows


def _described(
    store: Store, files: Sequence[ObjectInfo], notes: Notes, progress: ReadProgress
) -> list[Described]:
    """Each file, in order."""
    found = {info.path: known for info in files if (known := notes.find(info))}
    wanted = [info for info in files if info.path not in found]
    progress.started(len(wanted), sum(info.size for info in wanted))
    check = _schema_check(store, files[0].path)
    with reading_threads(_THREADS, progress.read) as (pool, on_bytes):
        futures = {
            pool.submit(describe_file, store, info.path, on_footer=check, on_bytes=on_bytes): info
            for info in wanted
        }
        for future in as_completed(futures):
            info = futures[future]
            found[info.path] = future.result()
            notes.add(info, found[info.path])
            progress.finished(info.path)
    return [found[info.path] for info in files]


def _schema_check(store: Store, first: str) -> Callable[[Footer], None]:
    """Finds a file of another schema before all its bytes are read."""
    expected = read_footer(store, first).fields

    def check(footer: Footer) -> None:
        if difference := schema_difference(expected, footer.fields):
            raise _differs(store, footer.info.path, first, difference)

    return check


def _check_unchanged(store: Store, files: Sequence[ObjectInfo]) -> None:
    """Reading takes long; the folder must not have become another one meanwhile."""
    before = {info.path: (info.size, info.etag) for info in files}
    now = {info.path: (info.size, info.etag) for info in store.objects("") if _is_data(info.path)}
    if changed := sorted(path for path, _ in before.items() ^ now.items()):
        raise DataError(
            f"{store.locate(changed[0])} was changed while the files were read",
            "Run again when nobody writes there any more: only what has changed is read.",
        )


def _differs(store: Store, path: str, first: str, difference: str) -> DataError:
    return DataError(
        f"{store.locate(path)} differs from {first} in {difference}",
        "The files of a data set have the same columns; move it elsewhere, or write it again.",
    )
