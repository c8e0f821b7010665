"""
The first half of a build: items become samples, a shard of the source at a time.

A shard is some consecutive items. What they give is kept in the store as an Arrow file until the
data set is there, with a record beside it that says the shard is done. Both depend on the items
alone, never on who made them or when.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue

from footplate.data.manifest import SchemaField
from footplate.data.schema import fields_of, schema_difference
from footplate.data.scratch import scratch_file
from footplate.data.tables import table_of
from footplate.errors import DataError, FootplateError, MissingExtraError, UserCodeError
from footplate.store import Store
from footplate.user_code import user_trace

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingExtraError("train", ("pyarrow",)) from error

__all__ = [
    "WORK_FOLDER",
    "Shaping",
    "Shard",
    "ShardRecord",
    "make_shard",
    "pieces_of",
    "shard_rows",
    "shards_of",
]

WORK_FOLDER = ".footplate-build"
"""Where an unfinished build keeps what it has, below the folder of the data set."""

# Items of a shard where nobody says: a shard for each item of a short source, and of a long one
# not so many that their number alone takes time.
_MANY_SHARDS = 256
_MOST_ITEMS = 1024
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Shaping:
    """
    What each task of a build has to know.

    Attributes:
        transform: The user's function.
        folder: Of the user's code.
        store: Of the data set's own folder.
        rows_per_group: Of the data set, and of the pieces that shards are kept in.
        compression: Of the data set.
    """

    transform: Callable[[Any], Any]
    folder: Path
    store: Store
    rows_per_group: int
    compression: str


class Shard(NamedTuple):
    """Some consecutive items; ``first`` is the number of the first one."""

    first: int
    items: tuple[JsonValue, ...]

    @property
    def path(self) -> str:
        """Of its samples in the data set's folder; the record's has ``.json`` after it."""
        last = self.first + len(self.items) - 1
        return f"{WORK_FOLDER}/items-{self.first:09d}-{last:09d}.arrow"


class ShardRecord(BaseModel):
    """
    A shard that is done.

    Attributes:
        path: Of its samples.
        items: How many.
        rows: Samples that they gave.
        size: Bytes of the samples in memory.
        fields: Their columns; none if there are no samples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    items: int
    rows: int
    size: int
    fields: tuple[SchemaField, ...]

    @property
    def told(self) -> str:
        """Which items these are, in words."""
        first, last = (int(number) for number in self.path.removesuffix(".arrow").split("-")[-2:])
        return f"item {first}" if first == last else f"items {first} to {last}"


def shards_of(items: Sequence[JsonValue], items_per_shard: int | None) -> list[Shard]:
    """Cut a source into shards, whatever machine it is built on."""
    size = items_per_shard or min(max(-(-len(items) // _MANY_SHARDS), 1), _MOST_ITEMS)
    return [
        Shard(first, tuple(items[first : first + size])) for first in range(0, len(items), size)
    ]


def make_shard(shaping: Shaping, shard: Shard) -> ShardRecord:
    """
    Turn items into samples and keep them in the store.

    Raises:
        UserCodeError: If the user's function fails, naming the item.
        DataError: If what it returns cannot be stored, naming the item.
        StoreError: If the store fails.
    """
    with scratch_file() as file:
        record = _written(_tables(shaping, shard), shard, shaping.rows_per_group, file)
        file.seek(0)
        shaping.store.put_file(shard.path, file)
        shaping.store.sync(shard.path)  # before anything says that it is done
    shaping.store.put(f"{shard.path}.json", record.model_dump_json().encode())
    return record


def shard_rows(
    store: Store, path: str, start: int, stop: int, rows_per_group: int
) -> Iterator[pa.Table]:
    """The samples ``start`` to ``stop`` (exclusive) of a shard, piece by piece."""
    with _damage_told(store, path):
        reader = pa.ipc.open_file(pa.PythonFile(store.reader(path), mode="r"))
    for number in range(start // rows_per_group, -(-stop // rows_per_group)):
        begin = number * rows_per_group
        with _damage_told(store, path):
            piece = pa.Table.from_batches([reader.get_batch(number)])
        yield piece.slice(max(start - begin, 0), stop - max(start, begin))


@contextmanager
def _damage_told(store: Store, path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{store.locate(path)}, which this build has written, cannot be read: {error}",
            f"Remove it and {store.locate(path)}.json: the same command makes it again.",
        ) from error


def _written(
    tables: Iterable[pa.Table], shard: Shard, rows_per_group: int, file: Any
) -> ShardRecord:
    """Write pieces of one size, so that each can be found by its number."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    writer: pa.ipc.RecordBatchFileWriter | None = None
    fields: tuple[SchemaField, ...] = ()
    rows = size = 0
    for piece in pieces_of(tables, rows_per_group):
        if any(column.num_chunks != 1 for column in piece.columns):
            raise DataError(
                f"{len(piece)} samples, a row group, have more than 2 GiB in one column",
                "Make rows_per_group smaller.",
            )
        if writer is None:
            writer = pa.ipc.new_file(file, piece.schema, options=options)
            fields = fields_of(piece.schema, shard.path)
        writer.write_table(piece)
        rows += len(piece)
        size += piece.nbytes
    if writer is not None:
        writer.close()
    return ShardRecord(path=shard.path, items=len(shard.items), rows=rows, size=size, fields=fields)


def pieces_of(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Cut tables anew, each piece in one chunk; all but the last have so many rows."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += len(table)
        while count >= rows:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, rows).combine_chunks()
            waiting = [joined.slice(rows)]
            count -= rows
    if count:
        yield pa.concat_tables(waiting).combine_chunks()


def _tables(shaping: Shaping, shard: Shard) -> Iterator[pa.Table]:
    """The samples of each item, of the same columns all."""
    expected: tuple[SchemaField, ...] | None = None
    for number, item in enumerate(shard.items, shard.first):
        where = f"item {number} of the source, {_shown(item)}"
        for columns in _columns(shaping, item, where):
            table = _table(columns, where)
            if not len(table):
                continue
            fields = fields_of(table.schema, where)
            if expected is not None and (difference := schema_difference(expected, fields)):
                raise DataError(f"{where}, differs from those before it in {difference}")
            expected = fields
            yield table


def _columns(shaping: Shaping, item: JsonValue, where: str) -> Iterator[Any]:
    """What the user's function makes of an item, in one part or in many."""
    try:
        made = shaping.transform(item)
        if isinstance(made, Mapping | pa.Table):
            yield made
        else:
            yield from made
    except DataError as error:
        raise DataError(f"{where}: {error.message}", error.hint) from error
    except FootplateError:
        raise
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise UserCodeError(
            f"{where}, cannot be transformed: {type(error).__name__}: {error}",
            "What was made of others is kept: repair this one, and the same command goes on.",
            user_trace(error, shaping.folder),
        ) from error


def _table(columns: Any, where: str) -> pa.Table:
    if not isinstance(columns, Mapping | pa.Table):
        raise UserCodeError(
            f"{where}: transform made {type(columns).__name__}, not columns by name",
            "Return a dictionary of arrays and lists or a pyarrow.Table, or yield such ones.",
        )
    try:
        return table_of(columns)
    except DataError as error:
        raise DataError(f"{where}: {error.message}", error.hint) from error


def _shown(item: JsonValue) -> str:
    text = json.dumps(item, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
