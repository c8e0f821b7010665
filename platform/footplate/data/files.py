"""
The second half of a build: samples become Parquet files of a chosen size.

How many samples each shard gave is known by now, and with it what goes into which file: files are
written independently of each other, each from the pieces of shards that it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from footplate.data.describe import Described, describe_file
from footplate.data.scratch import scratch_file
from footplate.data.shards import WORK_FOLDER, Shaping, ShardRecord, pieces_of, shard_rows
from footplate.errors import MissingExtraError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError("train", ("pyarrow",)) from error

__all__ = ["PlannedFile", "planned_files", "write_file"]


class Piece(NamedTuple):
    """The samples ``start`` to ``stop`` (exclusive) of a shard."""

    shard: str
    start: int
    stop: int


class PlannedFile(NamedTuple):
    """A file and the samples that it will have."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def path(self) -> str:
        """In the data set's folder."""
        return f"part-{self.number:05d}.parquet"

    @property
    def record(self) -> str:
        """Says that the file is done, and what it is."""
        return f"{WORK_FOLDER}/{self.path}.json"

    @property
    def rows(self) -> int:
        """Samples of the file."""
        return sum(piece.stop - piece.start for piece in self.pieces)


def planned_files(shards: Sequence[ShardRecord], rows_per_file: int) -> list[PlannedFile]:
    """Cut the samples of all shards, in their order, into files: each full, but for the last."""
    files: list[PlannedFile] = []
    pieces: list[Piece] = []
    room = rows_per_file
    for shard in shards:
        start = 0
        while start < shard.rows:
            stop = min(start + room, shard.rows)
            pieces.append(Piece(shard.path, start, stop))
            room -= stop - start
            start = stop
            if not room:
                files.append(PlannedFile(len(files), tuple(pieces)))
                pieces, room = [], rows_per_file
    if pieces:
        files.append(PlannedFile(len(files), tuple(pieces)))
    return files


def write_file(shaping: Shaping, planned: PlannedFile) -> Described:
    """
    Write a file into the store, and read it there once to say what it is.

    Raises:
        StoreError: If the store fails.
    """
    with scratch_file() as file:
        _write(_groups(shaping, planned), shaping, file)
        file.seek(0)
        shaping.store.put_file(planned.path, file)
        shaping.store.sync(planned.path)  # before anything says that it is done
    described = describe_file(shaping.store, planned.path)
    shaping.store.put(planned.record, described.model_dump_json().encode())
    return described


def _write(groups: Iterator[pa.Table], shaping: Shaping, file: Any) -> None:
    first = next(groups)
    # Values of a fixed-size binary rarely repeat and have no useful order: a dictionary of them,
    # or the least and the greatest in every footer, would only cost.
    ordered = [
        field.name for field in first.schema if not pa.types.is_fixed_size_binary(field.type)
    ]
    with pq.ParquetWriter(
        file,
        first.schema,
        compression=shaping.compression,
        use_dictionary=ordered,
        write_statistics=ordered,
    ) as writer:
        writer.write_table(first, row_group_size=shaping.rows_per_group)
        for group in groups:
            writer.write_table(group, row_group_size=shaping.rows_per_group)


def _groups(shaping: Shaping, planned: PlannedFile) -> Iterator[pa.Table]:
    """The samples of a file, a row group at a time: that much is in memory at once."""
    tables = (
        table
        for piece in planned.pieces
        for table in shard_rows(shaping.store, *piece, shaping.rows_per_group)
    )
    return pieces_of(tables, shaping.rows_per_group)
