"""Describing one Parquet file: its row groups, where their columns lie, and all digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pydantic import BaseModel, ConfigDict

from footplate.data.digest import digest_file
from footplate.data.footer import Footer, read_footer
from footplate.data.manifest import DataFile, RowGroup, SchemaField
from footplate.errors import DataError, MissingExtraError
from footplate.store import Store

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError("train", ("pyarrow",)) from error

__all__ = ["Described", "describe_file"]


class Described(BaseModel):
    """A file as a manifest has it, and its columns with the statistics of this file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: DataFile
    fields: tuple[SchemaField, ...]


def describe_file(
    store: Store,
    path: str,
    *,
    on_footer: Callable[[Footer], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Described:
    """
    Read a file once and say what it is.

    Args:
        on_footer: Called first; what it raises saves reading the rest.
        on_bytes: Called after each block that was read with its size.

    Raises:
        DataError: If it is missing, no Parquet file, damaged, or changes meanwhile.
        StoreError: If the store fails.
    """
    footer = read_footer(store, path)
    if on_footer is not None:
        on_footer(footer)
    ranges = [span for group in footer.row_groups for span in _ranges(group)]
    digests = digest_file(store, path, footer.info.size, ranges, on_bytes=on_bytes)
    counts = {name: _counted(store, path, name, on_bytes) for name in footer.uncounted}
    _check_unchanged(store, path, footer)
    groups = tuple(
        _completed(group, number, digests.ranges, footer.fields, counts)
        for number, group in enumerate(footer.row_groups)
    )
    file = DataFile(path=path, size=footer.info.size, sha256=digests.sha256, row_groups=groups)
    return Described(file=file, fields=footer.fields)


def _ranges(group: RowGroup) -> Iterable[tuple[int, int]]:
    return (
        (offset, offset + size) for offset, size in zip(group.offsets, group.sizes, strict=True)
    )


def _check_unchanged(store: Store, path: str, footer: Footer) -> None:
    now = store.info(path)
    if now is None or (now.size, now.etag) != (footer.info.size, footer.info.etag):
        raise DataError(
            f"{store.locate(path)} was changed while it was read",
            "A data set is made of files that nobody writes any more; run again when it is done.",
        )


def _completed(
    group: RowGroup,
    number: int,
    digests: tuple[str, ...],
    fields: tuple[SchemaField, ...],
    counts: dict[str, list[int]],
) -> RowGroup:
    width = len(fields)
    values = tuple(
        counts[field.name][number] if field.name in counts else known
        for field, known in zip(fields, group.values, strict=True)
    )
    own = digests[number * width : (number + 1) * width]
    return group.model_copy(update={"digests": own, "values": values})


def _counted(
    store: Store, path: str, column: str, on_bytes: Callable[[int], None] | None
) -> list[int]:
    """Values in the lists of each row group, by decoding the column: its footer does not say."""

    def count(batch: pa.RecordBatch) -> int:
        if on_bytes is not None:
            on_bytes(0)  # nothing new, but who counts may have ended
        values: int = pc.count(pc.list_flatten(batch.column(0)), mode="only_valid").as_py()
        return values

    try:
        file = pq.ParquetFile(pa.PythonFile(store.reader(path), mode="r"))
        return [
            sum(map(count, file.iter_batches(row_groups=[number], columns=[column])))
            for number in range(file.num_row_groups)
        ]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"column {column!r} of {store.locate(path)} cannot be read: {error}"
        ) from error
