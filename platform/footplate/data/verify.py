"""Comparing files with their manifest: what differs, and exactly where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from footplate.data.manifest import DataFile, DataManifest, RowGroup
from footplate.data.progress import ReadProgress
from footplate.data.threads import reading_threads
from footplate.errors import DataError
from footplate.store import Store

if TYPE_CHECKING:
    from footplate.data.footer import Footer

__all__ = ["Depth", "Difference", "find_differences", "refusal", "verify_files"]

# Above this much data the digests of all files take longer than starting a run should.
_DIGEST_LIMIT_BYTES = 1 << 30
# Digests are bound by the processor, footers by the time that a store takes to answer.
_THREADS = {"full": 8, "quick": 16}

Depth = Literal["quick", "full"]
"""Whether sizes and footers are compared, or every byte."""


class Difference(NamedTuple):
    """
    One thing that is not as the manifest says.

    Attributes:
        path: Of the file, relative to the manifest.
        what: A sentence that names the place.
        row_group: Its number in the file, from 0, if it is of one row group.
        column: Likewise.
    """

    path: str
    what: str
    row_group: int | None = None
    column: str | None = None

    def __str__(self) -> str:
        return self.what


def verify_files(
    manifest: DataManifest,
    store: Store,
    *,
    depth: Depth | None = None,
    skip_rows: int = 0,
    progress: ReadProgress | None = None,
) -> int:
    """
    Refuse files that are not what the manifest says.

    Args:
        depth: As for :func:`find_differences`; None is full up to 1 GiB of data.
        skip_rows: Of what differs so many may be: others stand in for them when they are read.
        progress: Hears how far it is.

    Returns:
        The rows that others will stand in for.

    Raises:
        DataError: Naming everything that differs and how.
        StoreError: If the store fails.
    """
    if depth is None:
        depth = "full" if manifest.size <= _DIGEST_LIMIT_BYTES else "quick"
    differences = find_differences(manifest, store, depth=depth, progress=progress)
    damaged = _damaged_rows(manifest, differences)
    if differences and (not skip_rows or damaged > skip_rows):
        raise refusal(manifest, differences)
    return damaged


def _damaged_rows(manifest: DataManifest, differences: Iterable[Difference]) -> int:
    """Of all row groups that something is wrong with."""
    files = {file.path: file for file in manifest.files}
    damaged: set[tuple[str, int]] = set()
    for path, _, row_group, _ in differences:
        every = range(len(files[path].row_groups))
        damaged.update((path, number) for number in (every if row_group is None else [row_group]))
    return sum(files[path].row_groups[number].rows for path, number in damaged)


def refusal(manifest: DataManifest, differences: Sequence[Difference]) -> DataError:
    """The error that names all differences."""
    lines = "\n".join(f"  {difference}" for difference in differences)
    return DataError(
        f"data set {manifest.name} does not match its manifest {manifest.version}:\n{lines}",
        "Restore the files, or write a new manifest: footplate dataset create.",
    )


def find_differences(
    manifest: DataManifest,
    store: Store,
    *,
    depth: Depth,
    progress: ReadProgress | None = None,
) -> list[Difference]:
    """
    Compare the files with the manifest.

    Args:
        depth: ``quick``: that they are there, their sizes and their footers (rows, schema, where
            each column lies). ``full``: also each byte, by the digests.
        progress: Hears how far it is.

    Returns:
        All of them, in the order of the files.
    """
    progress = progress or ReadProgress()
    progress.started(len(manifest.files), manifest.size if depth == "full" else 0)

    def check(file: DataFile) -> list[Difference]:
        try:
            found = list(_differences(file, manifest, store, depth, on_bytes))
        except DataError as error:
            found = [Difference(file.path, error.message)]
        progress.finished(file.path)
        return found

    with reading_threads(_THREADS[depth], progress.read) as (pool, on_bytes):
        return [found for differences in pool.map(check, manifest.files) for found in differences]


def _differences(
    file: DataFile,
    manifest: DataManifest,
    store: Store,
    depth: Depth,
    on_bytes: Callable[[int], None],
) -> Iterator[Difference]:
    from footplate.data.footer import read_footer

    footer = read_footer(store, file.path, size=file.size)
    found = list(_footer_differences(file, manifest, footer, store.locate(file.path)))
    if found or depth == "quick":
        yield from found
        return
    yield from _content_differences(file, manifest, store, on_bytes)


def _footer_differences(
    file: DataFile, manifest: DataManifest, footer: Footer, where: str
) -> Iterator[Difference]:
    from footplate.data.schema import schema_difference

    path = file.path
    if difference := schema_difference(manifest.fields, footer.fields):
        yield Difference(path, f"{where} differs in {difference}")
        return
    found, expected = len(footer.row_groups), len(file.row_groups)
    if found != expected:
        yield Difference(path, f"{where} has {found} row groups, not {expected}")
        return
    for number, pair in enumerate(zip(file.row_groups, footer.row_groups, strict=True)):
        yield from _group_differences(path, number, *pair, manifest, where)


def _group_differences(
    path: str, number: int, expected: RowGroup, found: RowGroup, manifest: DataManifest, where: str
) -> Iterator[Difference]:
    group = f"row group {number} of {where}"
    if found.rows != expected.rows:
        yield Difference(path, f"{group} has {found.rows} rows, not {expected.rows}", number)
    for index, field in enumerate(manifest.fields):
        is_at, should_be_at = _place(found, index), _place(expected, index)
        if is_at != should_be_at:
            what = (
                f"{group}: column {field.name!r} is at {_bytes(is_at)}, not {_bytes(should_be_at)}"
            )
            yield Difference(path, what, number, field.name)


def _content_differences(
    file: DataFile, manifest: DataManifest, store: Store, on_bytes: Callable[[int], None]
) -> Iterator[Difference]:
    from footplate.data.digest import digest_file

    places = [
        (number, index)
        for number in range(len(file.row_groups))
        for index in range(len(manifest.fields))
    ]
    ranges = [_place(file.row_groups[number], index) for number, index in places]
    where = store.locate(file.path)
    digests = digest_file(store, file.path, file.size, ranges, on_bytes=on_bytes)
    damaged = False
    for (number, index), digest in zip(places, digests.ranges, strict=True):
        if digest != file.row_groups[number].digests[index]:
            damaged = True
            name = manifest.fields[index].name
            what = f"row group {number} of {where}: column {name!r} has another content"
            yield Difference(file.path, what, number, name)
    if not damaged and digests.sha256 != file.sha256:
        what = f"{where} has another content outside of its columns (sha256 differs)"
        yield Difference(file.path, what)


def _place(group: RowGroup, index: int) -> tuple[int, int]:
    """First byte of a column and one past the last."""
    return group.offsets[index], group.offsets[index] + group.sizes[index]


def _bytes(place: tuple[int, int]) -> str:
    return f"bytes {place[0]} to {place[1]}"
