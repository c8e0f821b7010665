"""
Row groups of the files of one manifest: fetched in ranges, compared with it, decoded.

Only the bytes of the wanted columns are fetched, and the few between them that cost less than
another request; all that are wanted are compared with the digests of the manifest whenever they are
read. What decodes them sees nothing else of the file, so a damaged footer cannot lead it to other
bytes.

A file of this machine may be looked at where it is. Its values are then copied after they were
compared, by who reads, who has to ask once more whether the file is still the same.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pyarrow
import pyarrow.parquet
import xxhash

from footplate.data.footer import TAIL_BYTES, footer_length
from footplate.data.manifest import DataFile, DataManifest, RowGroup, SchemaField
from footplate.data.mapped_files import MappedFiles, Views
from footplate.data.pages import plain_pages, uncompressed_columns
from footplate.data.schema import fields_of, schema_difference
from footplate.errors import DataError, ObjectNotFoundError, StoreError
from footplate.store import Store
from footplate.store.patience import Pace, Patience, patiently

__all__ = ["RowGroupFiles"]

Range = tuple[int, int]  # first byte and one past the last

# Of footers that are kept, as they are stored; in memory each takes some times as much.
_FOOTERS_BYTES = 16 << 20
_LOCKS = 64
# Sooner there than the answer to another request: a connection to a bucket carries some 90 MB/s.
_GAP_BYTES = 64 << 10
_END_BYTES = 8  # the length of the metadata, and the magic number
# Column chunks of a file: each takes 17 us to look at, in which no other thread goes on.
_MOST_CHUNKS = 2000
# Numbers that Parquet stores as they are in memory: its own type, and the bytes of one.
_NUMBERS = {
    "int32": ("INT32", 4),
    "uint32": ("INT32", 4),
    "int64": ("INT64", 8),
    "uint64": ("INT64", 8),
    "float": ("FLOAT", 4),
    "double": ("DOUBLE", 8),
}


@dataclass(frozen=True, slots=True)
class _Place:
    """
    Where a row group is.

    Attributes:
        file: Its number.
        index: Of the row group in the file.
    """

    file: int
    entry: DataFile
    index: int

    @property
    def group(self) -> RowGroup:
        return self.entry.row_groups[self.index]


class _Leaf(NamedTuple):
    """A column whose values could be taken as they are stored: its number, and their width."""

    number: int
    width: int
    is_optional: bool


@dataclass(frozen=True, eq=False)
class _Footer:
    """
    What a file says of itself.

    Attributes:
        fields: What the manifest says of the same columns.
        content: The metadata as they are stored, if they are of use.
    """

    metadata: pyarrow.parquet.FileMetaData
    schema: pyarrow.Schema
    fields: Sequence[SchemaField]
    content: bytes

    @cached_property
    def leaves(self) -> dict[str, _Leaf]:
        """The columns of Parquet's whose values could be taken as they are stored."""
        stored = {field.name: _stored(field) for field in self.fields}
        leaves = {}
        for number in range(self.metadata.num_columns if self.uncompressed else 0):
            column = self.metadata.schema.column(number)
            kind, width = stored.get(column.path) or ("", 0)
            is_single = not column.max_repetition_level and column.max_definition_level < 2
            if width and column.physical_type == kind and is_single:
                leaves[column.path] = _Leaf(number, width, column.max_definition_level == 1)
        return leaves

    @cached_property
    def uncompressed(self) -> list[list[bool]]:
        """Of each row group which of Parquet's columns are not compressed; none if unknown."""
        columns, groups = self.metadata.num_columns, self.metadata.num_row_groups
        if not self.content or columns * groups > _MOST_CHUNKS:
            return []
        found = uncompressed_columns(memoryview(self.content))
        return found if list(map(len, found)) == [columns] * groups else []

    def in_place(self, index: int, name: str, content: memoryview) -> pyarrow.ChunkedArray | None:
        """A column of a row group as views of its pages, unless they have to be decoded."""
        leaf = self.leaves.get(name)
        if leaf is None:
            return None
        if not self.uncompressed[index][leaf.number]:
            return None
        rows = self.metadata.row_group(index).num_rows
        pages = plain_pages(content, width=leaf.width, rows=rows, is_optional=leaf.is_optional)
        if pages is None:
            return None
        kind, whole = self.schema.field(name).type, pyarrow.py_buffer(content)
        chunks = [
            pyarrow.Array.from_buffers(
                kind, page.rows, [None, whole.slice(page.offset, page.rows * leaf.width)]
            )
            for page in pages
        ]
        return pyarrow.chunked_array(chunks, kind)


def _stored(field: SchemaField) -> tuple[str, int] | None:
    """
    Parquet's type of values that it stores as they are in memory, and the bytes of one.

    Only what becomes an array of NumPy's: that is copied before a file may change.
    """
    if field.dtype is not None:
        return "FIXED_LEN_BYTE_ARRAY", field.width
    return _NUMBERS.get(field.type)


class RowGroupFiles:
    """
    Random access to the row groups of a manifest; for many threads at once.

    Args:
        store: The folder that the manifest's files are relative to.
        columns: What to read, in this order.
    """

    def __init__(
        self, manifest: DataManifest, store: Store, columns: Sequence[str], patience: Patience
    ) -> None:
        self._manifest = manifest
        self._store = store
        self._columns = list(columns)
        self._stored = [_stored(field) for field in manifest.fields]
        names = [field.name for field in manifest.fields]
        self._numbers = [names.index(column) for column in columns]
        self._patience = patience
        self._pace = Pace(patience.requests)
        self._mapped = MappedFiles(store.folder) if store.folder is not None else None
        self._places = [
            _Place(number, file, index)
            for number, file in enumerate(manifest.files)
            for index in range(len(file.row_groups))
        ]
        self._footers: OrderedDict[int, _Footer] = OrderedDict()
        self._lock = threading.Lock()
        self._file_locks = [threading.Lock() for _ in range(_LOCKS)]

    def name(self, group: int) -> str:
        """What a row group is called in messages."""
        place = self._places[group]
        return f"row group {place.index} of {self._store.locate(place.entry.path)}"

    def size(self, group: int) -> int:
        """Bytes of a row group in memory, about."""
        described = self._places[group].group
        fields = [self._manifest.fields[number] for number in self._numbers]
        stored = [described.sizes[number] for number in self._numbers]
        return sum(
            max(size, field.width * described.rows)
            for size, field in zip(stored, fields, strict=True)
        )

    def is_at_hand(self, group: int) -> bool:
        """Whether it can be looked at in a file of this machine, and probably needs no decoding."""
        place = self._places[group]
        return (
            self._mapped is not None
            and all(self._may_be_plain(place, number) for number in self._numbers)
            and self._mapped.has(place.entry.path)
        )

    def read(
        self, group: int, stopped: threading.Event, views: Views | None = None
    ) -> pyarrow.Table:
        """
        A row group.

        Args:
            stopped: Set when nobody waits for it any more.
            views: If there are any, it may be a view of a file, which is added to these.

        Raises:
            DataError: If the file is missing, or not what the manifest says.
            StoreError: If the store fails for too long, or refuses.
            ReadingStopped: If ``stopped`` was set.
        """
        place = self._places[group]
        try:
            try:
                return self._read(place, stopped, views)
            except DataError:
                if self._store.folder is not None:
                    raise
                # It may be the answer that is damaged, and not what is stored.
                return self._read(place, stopped, views)
        except DataError as damage:
            raise self._diagnosed(group, damage.message) from damage.__cause__
        except ObjectNotFoundError as error:
            raise DataError(f"{self.name(group)} cannot be read: no such file") from error
        except StoreError as error:
            raise type(error)(f"{self.name(group)}: {error.message}", error.hint) from error

    def _read(self, place: _Place, stopped: threading.Event, views: Views | None) -> pyarrow.Table:
        # Whoever comes first fetches the footer together with the data; others wait for that.
        lock = self._file_locks[place.file % _LOCKS]
        is_first = self._footer(place) is None and lock.acquire(blocking=False)
        try:
            content, tail = self._fetch(place, is_first, stopped, views)
        finally:
            if is_first:
                lock.release()
        footer = tail
        if footer is None:
            with lock:
                footer = self._footer(place) or self._fetch_footer(place, stopped)
        return self._decoded(place, footer, content)

    def _fetch(
        self, place: _Place, with_footer: bool, stopped: threading.Event, views: Views | None
    ) -> tuple[_Ranges, _Footer | None]:
        """The wanted columns, compared with their digests; and the footer, if that is wanted."""
        spans = [
            (place.group.offsets[number], place.group.offsets[number] + place.group.sizes[number])
            for number in self._numbers
        ]
        ranges = _merged(spans)
        tail = [_tail_of(place.entry)] if with_footer else []
        parts = None
        if views is not None and self._mapped is not None:
            parts = self._mapped.read(place.entry.path, [*ranges, *tail], views)
        if parts is None:
            parts = self._request(place, [*ranges, *tail], stopped)
        content = _Ranges(ranges, parts[: len(ranges)], place.entry.size)
        for number, span in zip(self._numbers, spans, strict=True):
            self._compare(place, number, content.view(*span))
        return content, self._kept(place, parts[-1], stopped) if with_footer else None

    def _request(
        self, place: _Place, ranges: Sequence[Range], stopped: threading.Event
    ) -> list[memoryview]:
        path, asked = place.entry.path, _requests(ranges, place.entry.size)
        answers = patiently(
            lambda: self._store.read_ranges(path, asked), self._patience, self._pace, stopped
        )
        for (start, stop), answer in zip(asked, answers, strict=True):
            if len(answer) != stop - start:
                raise DataError(f"the file ends before byte {stop}")
        content = _Ranges(asked, answers, place.entry.size)
        return [content.view(*each) for each in ranges]

    def _compare(self, place: _Place, number: int, content: memoryview) -> None:
        expected, found = place.group.digests[number], xxhash.xxh3_64_hexdigest(content)
        if found != expected:
            name = self._manifest.fields[number].name
            raise DataError(
                f"the bytes of column {name} are others (their digest is {found}, not {expected})"
            )

    def _footer(self, place: _Place) -> _Footer | None:
        with self._lock:
            footer = self._footers.get(place.file)
            if footer is not None:
                self._footers.move_to_end(place.file)
            return footer

    def _fetch_footer(self, place: _Place, stopped: threading.Event) -> _Footer:
        (tail,) = self._request(place, [_tail_of(place.entry)], stopped)
        return self._kept(place, tail, stopped)

    def _kept(self, place: _Place, tail: memoryview, stopped: threading.Event) -> _Footer:
        """Interpret the end of a file, and keep that while there is room."""
        size = place.entry.size
        length = footer_length(tail)
        if len(tail) < length <= size:
            (tail,) = self._request(place, [(size - length, size)], stopped)
        try:
            found = pyarrow.parquet.read_metadata(pyarrow.BufferReader(pyarrow.py_buffer(tail)))
            self._check(place.entry, found)
            is_of_use = any(self._may_be_plain(place, number) for number in self._numbers)
            content = bytes(tail[-length:-_END_BYTES]) if is_of_use else b""
            schema = found.schema.to_arrow_schema()
            footer = _Footer(found, schema, self._manifest.fields, content)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise DataError(f"its footer is damaged: {error}") from error
        with self._lock:
            self._footers[place.file] = footer
            while self._kept_bytes() > _FOOTERS_BYTES and len(self._footers) > 1:
                self._footers.popitem(last=False)
        return footer

    def _kept_bytes(self) -> int:
        return sum(footer.metadata.serialized_size for footer in self._footers.values())

    def _check(self, entry: DataFile, footer: pyarrow.parquet.FileMetaData) -> None:
        """Refuse a footer that says something else than the manifest."""
        found = fields_of(footer.schema.to_arrow_schema(), self._store.locate(entry.path))
        if difference := schema_difference(self._manifest.fields, found):
            raise DataError(f"the file differs from its manifest in {difference}")
        rows = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
        expected = [group.rows for group in entry.row_groups]
        if rows != expected:
            raise DataError(f"the file has row groups of {rows} rows, not {expected}")

    def _decoded(self, place: _Place, footer: _Footer, content: _Ranges) -> pyarrow.Table:
        columns: dict[str, tuple[pyarrow.Field, pyarrow.ChunkedArray]] = {}
        for name, number in zip(self._columns, self._numbers, strict=True):
            begin = place.group.offsets[number]
            span = content.view(begin, begin + place.group.sizes[number])
            is_of_use = self._may_be_plain(place, number)
            if is_of_use and (found := footer.in_place(place.index, name, span)) is not None:
                columns[name] = footer.schema.field(name), found
        others = [name for name in self._columns if name not in columns]
        if others:
            table = self._decoded_by_arrow(place, footer, content, others)
            for name in others:
                columns[name] = table.field(name), table.column(name)
        fields, arrays = zip(*(columns[name] for name in self._columns), strict=True)
        return pyarrow.Table.from_arrays(list(arrays), schema=pyarrow.schema(list(fields)))

    def _may_be_plain(self, place: _Place, number: int) -> bool:
        """Whether as much is stored of a column as its values are: if less, it was compressed."""
        stored = self._stored[number]
        return stored is not None and place.group.sizes[number] >= stored[1] * place.group.rows

    def _decoded_by_arrow(
        self, place: _Place, footer: _Footer, content: _Ranges, columns: list[str]
    ) -> pyarrow.Table:
        try:
            file = pyarrow.parquet.ParquetFile(
                pyarrow.PythonFile(content, mode="r"), metadata=footer.metadata, pre_buffer=False
            )
            table = file.read_row_group(place.index, columns=columns, use_threads=False)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise DataError(str(error)) from error
        if table.num_rows != place.group.rows:
            raise DataError(f"it has {table.num_rows} rows, not {place.group.rows}")
        return table.select(columns)

    def _diagnosed(self, group: int, damage: str) -> DataError:
        """Say it by the size of the file, if that alone is wrong enough."""
        entry = self._places[group].entry
        try:
            size = self._store.size(entry.path)
        except StoreError:
            size = entry.size
        if size is None:
            damage = "no such file"
        elif size != entry.size:
            damage = f"the file has {size} bytes, not {entry.size}"
        return DataError(
            f"{self.name(group)} cannot be read: {damage}",
            f"Data set {self._manifest.name} is not what its manifest "
            f"{self._manifest.version} describes: restore the file, or write a new manifest.",
        )


class _Ranges(io.RawIOBase):
    """Some ranges of a file as Python's own kind of file; all else is not there."""

    def __init__(self, ranges: Sequence[Range], parts: Sequence[memoryview], size: int) -> None:
        self._ranges = list(zip(ranges, parts, strict=True))
        self._size = size
        self._position = 0

    def view(self, start: int, stop: int) -> memoryview:
        """The bytes from ``start`` to ``stop``."""
        for (begin, end), part in self._ranges:
            if begin <= start and stop <= end:
                return part[start - begin : stop - begin]
        if start == stop:
            return memoryview(b"")
        raise OSError(f"the footer names bytes {start} to {stop}, and the manifest others")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> memoryview:  # no copy for Arrow
        stop = self._size if size < 0 else min(self._position + size, self._size)
        content = self.view(self._position, max(stop, self._position))
        self._position = stop
        return content


def _tail_of(entry: DataFile) -> Range:
    """Where the footer is, as far as can be told: behind all data, at the end of the file."""
    ends = (
        offset + size
        for group in entry.row_groups
        for offset, size in zip(group.offsets, group.sizes, strict=True)
    )
    return max(max(ends, default=0), entry.size - TAIL_BYTES, 0), entry.size


def _merged(spans: Iterable[Range], gap: int = 0) -> list[Range]:
    """The spans, those with no more than so many bytes between them as one."""
    merged: list[Range] = []
    for start, stop in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _requests(ranges: Sequence[Range], size: int) -> list[Range]:
    """What to ask a store for: an object whole, if little else is in it."""
    requests = _merged(ranges, _GAP_BYTES)
    if len(requests) == 1 and requests[0][1] - requests[0][0] + _GAP_BYTES >= size:
        return [(0, size)]
    return requests
