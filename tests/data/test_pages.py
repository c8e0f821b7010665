"""Values that lie in Parquet's pages as they are: found there, and the same as Arrow decodes."""

from __future__ import annotations

import io
import threading
import tracemalloc
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from footplate.data import read_manifest
from footplate.data.create import create_manifest
from footplate.data.mapped_files import Views
from footplate.data.pages import plain_pages, uncompressed_columns
from footplate.data.row_groups import RowGroupFiles
from footplate.store.patience import Patience

_NUMBERS = {
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float32": np.float32,
    "float64": np.float64,
}
_KINDS = [*_NUMBERS, "binary", "int8", "float16", "text", "list", "fixed list"]


def _column(kind: str, rows: int, width: int) -> pa.Array:
    source = np.random.default_rng(rows)
    if kind == "binary":
        content = pa.py_buffer(source.bytes(rows * width))
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, content])
    if kind in ("text", "list"):
        texts = [f"sample {row}" * (row % 3) for row in range(1, rows + 1)]
        lists = [list(text.encode()) for text in texts]
        return pa.array(texts) if kind == "text" else pa.array(lists, pa.list_(pa.int64()))
    if kind == "fixed list":
        return pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * width)), width)
    return pa.array(source.integers(0, 100, rows).astype(_NUMBERS.get(kind, kind)))


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    kinds=st.lists(st.sampled_from(_KINDS), min_size=1, max_size=3),
    rows=st.integers(1, 90),
    group_rows=st.integers(1, 40),
    width=st.integers(1, 70),
    page_bytes=st.sampled_from([50, 300, 1 << 20]),
    version=st.sampled_from(["1.0", "2.0"]),
    is_nullable=st.booleans(),
    dictionary=st.booleans(),
    compression=st.sampled_from(["none", "zstd"]),
    in_place=st.booleans(),
)
def test_row_groups_are_what_arrow_decodes(
    tmp_path_factory: pytest.TempPathFactory,
    kinds: list[str],
    rows: int,
    group_rows: int,
    width: int,
    page_bytes: int,
    version: Literal["1.0", "2.0"],
    is_nullable: bool,
    dictionary: bool,
    compression: str,
    in_place: bool,
) -> None:
    """However a file was written, its row groups hold the same, looked at in place or not."""
    folder = tmp_path_factory.mktemp("pages")
    arrays = [_column(kind, rows, width) for kind in kinds]
    fields = [
        pa.field(f"{kind} {at}", array.type, is_nullable)
        for at, (kind, array) in enumerate(zip(kinds, arrays, strict=True))
    ]
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=pa.schema(fields)),
        folder / "x.parquet",
        row_group_size=group_rows,
        data_page_size=page_bytes,
        write_batch_size=7,
        data_page_version=version,
        use_dictionary=dictionary,
        compression=compression,
    )
    manifest, store = read_manifest(create_manifest(str(folder), name="x").uri)
    files = RowGroupFiles(manifest, store, [field.name for field in fields], Patience())
    expected = pq.ParquetFile(folder / "x.parquet")
    for group in range(expected.num_row_groups):
        found = files.read(group, threading.Event(), Views() if in_place else None)
        found.validate(full=True)
        assert found.equals(expected.read_row_group(group))


def _chunk(array: pa.Array, **how: Any) -> memoryview:
    """The pages of a column, alone."""
    sink = io.BytesIO()
    schema = pa.schema([pa.field("x", array.type, nullable=how.pop("nullable", False))])
    pq.write_table(pa.Table.from_arrays([array], schema=schema), sink, **how)
    chunk = pq.read_metadata(sink).row_group(0).column(0)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    return memoryview(sink.getvalue())[begin : begin + chunk.total_compressed_size]


_AS_IT_IS: dict[str, Any] = {"compression": "none", "use_dictionary": False}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("nullable", [False, True])
def test_values_are_found(nullable: bool, version: str) -> None:
    """All values of all pages are where they are said to be."""
    values = np.arange(1000)
    content = _chunk(
        pa.array(values),
        nullable=nullable,
        data_page_version=version,
        data_page_size=800,
        write_batch_size=50,
        **_AS_IT_IS,
    )
    pages = plain_pages(content, width=8, rows=1000, is_optional=nullable)
    assert pages is not None
    assert len(pages) > 5
    found = [content[page.offset : page.offset + 8 * page.rows] for page in pages]
    assert b"".join(found) == values.tobytes()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(
    "how",
    [
        _AS_IT_IS | {"compression": "zstd"},
        _AS_IT_IS | {"use_dictionary": True},
        _AS_IT_IS | {"column_encoding": "BYTE_STREAM_SPLIT"},
        _AS_IT_IS | {"column_encoding": "DELTA_BINARY_PACKED"},
    ],
)
def test_what_is_encoded_is_left_to_arrow(how: dict[str, Any], version: str) -> None:
    """Bytes that are not the values are never taken for them."""
    content = _chunk(pa.array(np.arange(1000) % 9), data_page_version=version, **how)
    assert plain_pages(content, width=8, rows=1000, is_optional=False) is None


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_missing_values_are_left_to_arrow(version: str) -> None:
    """Where one is missing, those behind it lie elsewhere."""
    content = _chunk(pa.array([1, None, 3]), nullable=True, data_page_version=version, **_AS_IT_IS)
    assert plain_pages(content, width=8, rows=3, is_optional=True) is None


def test_pages_of_another_column_are_left_to_arrow() -> None:
    """Another width, another number of rows, or nullable by mistake: nothing fits."""
    content = _chunk(pa.array(np.arange(1000)), **_AS_IT_IS)
    for width, rows, is_optional in ((4, 1000, False), (8, 999, False), (8, 1000, True)):
        found = plain_pages(content, width=width, rows=rows, is_optional=is_optional)
        assert found is None


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_survived(content: bytes, is_optional: bool) -> None:
    """What is no page at all ends in nothing but an answer, and soon."""
    found = plain_pages(memoryview(content), width=8, rows=3, is_optional=is_optional)
    assert found is None or sum(page.rows for page in found) == 3
    assert isinstance(uncompressed_columns(memoryview(content)), list)


def _metadata(**how: Any) -> bytes:
    """Of a file with two columns and ten row groups."""
    sink = io.BytesIO()
    table = pa.table({"x": np.arange(100), "y": np.arange(100.0)})
    pq.write_table(table, sink, row_group_size=10, **how)
    content = sink.getvalue()
    return content[-8 - int.from_bytes(content[-8:-4], "little") : -8]


@settings(max_examples=200)
@given(
    at=st.integers(0, 10**6), size=st.integers(0, 20), new=st.binary(max_size=20), cut=st.booleans()
)
def test_damaged_footers_are_survived(at: int, size: int, new: bytes, cut: bool) -> None:
    """Other bytes, more of them, or fewer: an answer of some form, and soon."""
    content = bytearray(_metadata(compression="none"))
    at %= len(content)
    content[at : at + size] = new
    if cut:
        del content[at + len(new) :]
    for group in uncompressed_columns(memoryview(content)):
        assert set(group) <= {True, False}


def test_footers_say_what_is_compressed() -> None:
    """Of every row group, of every column."""
    how: dict[str, Any] = {"compression": {"x": "zstd", "y": "none"}}
    assert uncompressed_columns(memoryview(_metadata(**how))) == [[False, True]] * 10


@pytest.mark.parametrize("kind", [1, 5, 12])
def test_lists_of_more_than_there_is_are_refused(kind: int) -> None:
    """A length alone cannot make it take memory or time."""
    many = bytes([0x19, 0xF0 | kind, 0xFF, 0xFF, 0xFF, 0xFF, 0x07])
    tracemalloc.start()
    assert uncompressed_columns(memoryview(many + bytes(10_000))) == []
    assert plain_pages(memoryview(many), width=8, rows=3, is_optional=False) is None
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50_000


def test_structures_in_structures_are_survived() -> None:
    """More of them than Python calls functions of functions."""
    content = memoryview(b"\x1c" * 100_000)
    assert plain_pages(content, width=8, rows=3, is_optional=False) is None
    assert uncompressed_columns(content) == []


def _signed(number: int) -> bytes:
    """A small number as the headers of pages have it."""
    return bytes([2 * number if number >= 0 else -2 * number - 1])


@pytest.mark.parametrize("rows", [0, -1])
def test_pages_of_nothing_are_left_to_arrow(rows: int) -> None:
    """A page has values: fewer than one could only undo what others have."""
    # Data page, second form; both sizes; its header: values, nulls, rows, encoding, levels.
    kind = b"".join(b"\x15" + _signed(number) for number in (3, 0, 0))
    told = b"".join(b"\x15" + _signed(number) for number in (rows, 0, rows, 0, -8 * rows, 0))
    content = memoryview(kind + b"\x5c" + told + b"\0\0")
    assert plain_pages(content, width=8, rows=rows, is_optional=False) is None


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10**6), cut=st.booleans())
def test_damaged_pages_are_survived(at: int, cut: bool) -> None:
    """A wrong byte or a missing end: pages inside of the content, or none."""
    content = bytearray(_chunk(pa.array(np.arange(60)), nullable=True, **_AS_IT_IS))
    at %= len(content)
    if cut:
        del content[at:]
    else:
        content[at] ^= 0xFF
    found = plain_pages(memoryview(content), width=8, rows=60, is_optional=True) or []
    for page in found:
        assert 0 <= page.offset <= page.offset + 8 * page.rows <= len(content)


def test_a_file_that_changes_while_it_is_read_is_found(tmp_path: Path) -> None:
    """Overwritten, replaced or cut short between two reads: what is read is compared again."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": np.arange(4000)}), path, row_group_size=1000, **_AS_IT_IS)
    manifest, store = read_manifest(create_manifest(str(tmp_path), name="x").uri)
    files = RowGroupFiles(manifest, store, ["x"], Patience())
    content = path.read_bytes()

    def read(group: int) -> list[int]:
        table = files.read(group, threading.Event(), Views())
        numbers: list[int] = table.column("x").to_pylist()
        return numbers

    assert read(1) == list(range(1000, 2000))
    changed = bytearray(content)
    changed[manifest.files[0].row_groups[1].offsets[0] + 500] ^= 1
    with path.open("r+b") as file:
        file.write(changed)
    with pytest.raises(Exception, match="the bytes of column x are others"):
        read(1)
    assert read(0) == list(range(1000))
    other = tmp_path / "other"
    other.write_bytes(content)
    other.replace(path)
    assert read(1) == list(range(1000, 2000))
    path.write_bytes(content[:9000])
    with pytest.raises(Exception, match=r"the file has 9000 bytes, not"):
        read(1)
    path.unlink()
    with pytest.raises(Exception, match="no such file"):
        read(1)
