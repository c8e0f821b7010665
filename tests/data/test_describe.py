"""A file is described as it is, in one pass, or not at all."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.data.describe import Described, describe_file
from footplate.data.digest import digest_file
from footplate.errors import DataError
from footplate.store import Store

_NESTED = pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string()))])


def _rows(count: int) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "number": pa.array(numbers, pa.uint64()),
            "tokens": pa.array([list(range(number % 4)) for number in numbers]),
            "nested": pa.array([{"x": n, "tags": ["a"] * n} for n in numbers], _NESTED),
            "word": pa.array([f"w{number % 3}" for number in numbers]).dictionary_encode(),
            "pair": pa.array([[1.5, float(n)] for n in numbers], pa.list_(pa.float32(), 2)),
            "map": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int32())),
        }
    )


def _described(folder: Path, table: pa.Table, **options: Any) -> Described:
    pq.write_table(table, folder / "a.parquet", **options)
    return describe_file(Store(str(folder)), "a.parquet")


def test_all_of_a_file_is_told(tmp_path: Path) -> None:
    """Rows, places and digests of every column of every row group are those of the file."""
    described = _described(tmp_path, _rows(10), row_group_size=4)

    content = (tmp_path / "a.parquet").read_bytes()
    file = described.file
    assert (file.path, file.size, file.rows) == ("a.parquet", len(content), 10)
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert [group.rows for group in file.row_groups] == [4, 4, 2]
    for group in file.row_groups:
        parts = [
            content[offset : offset + size]
            for offset, size in zip(group.offsets, group.sizes, strict=True)
        ]
        assert group.digests == tuple(map(xxhash.xxh3_64_hexdigest, parts))
        assert all(len(digest) == 16 for digest in group.digests)
        assert list(group.offsets) == sorted(group.offsets)


def test_the_bytes_of_a_column_are_enough_to_read_it(tmp_path: Path) -> None:
    """Nothing outside of a column's range is needed, its dictionary and inner columns included."""
    table = _rows(10)
    described = _described(tmp_path, table, row_group_size=4)
    content = (tmp_path / "a.parquet").read_bytes()
    group = described.file.row_groups[1]
    footer = pq.read_metadata(tmp_path / "a.parquet")

    for index, field in enumerate(described.fields):
        begin, end = group.offsets[index], group.offsets[index] + group.sizes[index]
        alone = b"\0" * begin + content[begin:end] + b"\0" * (len(content) - end)
        read = pq.ParquetFile(pa.BufferReader(alone), metadata=footer).read_row_group(
            1, columns=[field.name]
        )
        assert read.column(0).to_pylist() == table.column(field.name)[4:8].to_pylist()


def test_columns_are_summed_up(tmp_path: Path) -> None:
    """Nulls and extremes come from the footer; nested columns have none, and texts may."""
    fields = {field.name: field for field in _described(tmp_path, _rows(10)).fields}

    assert (fields["number"].nulls, fields["number"].minimum, fields["number"].maximum) == (0, 0, 9)
    assert (fields["word"].minimum, fields["word"].maximum) == ("w0", "w2")
    assert fields["pair"].maximum is None
    assert fields["nested"].minimum is None


_FLOATS = st.lists(st.none() | st.floats(width=64), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(
    integers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=12),
    floats=_FLOATS,
    group=st.integers(1, 5),
)
def test_extremes_are_true_or_not_told(
    tmp_path_factory: pytest.TempPathFactory,
    integers: list[int | None],
    floats: list[float | None],
    group: int,
) -> None:
    """What is said of a column's values holds for them, whatever writers make of NaN."""
    folder = tmp_path_factory.mktemp("data")
    size = min(len(integers), len(floats))
    columns: list[list[Any]] = [list(integers[:size]), list(floats[:size])]
    table = pa.table(
        [pa.array(columns[0], pa.int64()), pa.array(columns[1], pa.float64())], ["i", "f"]
    )

    described = _described(folder, table, row_group_size=group)

    for field, values in zip(described.fields, columns, strict=True):
        present = [value for value in values if value is not None and value == value]
        assert field.nulls == values.count(None)
        if field.minimum is not None:
            assert (field.minimum, field.maximum) == (min(present), max(present))
    integer = described.fields[0]
    assert (integer.minimum is None) == (not any(value is not None for value in columns[0]))


_LISTS = st.lists(
    st.none() | st.lists(st.none() | st.integers(0, 9), max_size=4), min_size=1, max_size=12
)


@settings(deadline=None, max_examples=60)
@given(lists=_LISTS, group=st.integers(1, 5), large=st.booleans(), statistics=st.booleans())
def test_values_in_lists_are_counted(
    tmp_path_factory: pytest.TempPathFactory,
    lists: list[list[int | None] | None],
    group: int,
    large: bool,
    statistics: bool,
) -> None:
    """Missing and empty lists and nulls in them count nothing, told by statistics or not."""
    kind = pa.large_list(pa.int32()) if large else pa.list_(pa.int32())
    table = pa.table({"number": pa.array(range(len(lists))), "tokens": pa.array(lists, kind)})

    described = _described(
        tmp_path_factory.mktemp("data"), table, row_group_size=group, write_statistics=statistics
    )

    for number, found in enumerate(described.file.row_groups):
        own = lists[number * group : (number + 1) * group]
        assert found.values == (
            None,
            sum(value is not None for part in own for value in part or ()),
        )


def test_counting_ends_when_nobody_waits(tmp_path: Path) -> None:
    """To decode a column takes long; who counts hears of an end meanwhile, as who reads does."""
    table = pa.table({"tokens": [[1, 2], [3]]})
    pq.write_table(table, tmp_path / "a.parquet", write_statistics=False)

    def told(size: int) -> None:
        if not size:
            raise CancelledError

    with pytest.raises(CancelledError):
        describe_file(Store(str(tmp_path)), "a.parquet", on_bytes=told)


def test_long_texts_are_not_repeated(tmp_path: Path) -> None:
    """A manifest does not hold documents, nor what a writer may have cut."""
    field = _described(tmp_path, pa.table({"text": ["a", "b" * 61]})).fields[0]

    assert (field.nulls, field.minimum, field.maximum) == (0, None, None)


def test_row_groups_without_rows_are_kept(tmp_path: Path) -> None:
    """They count, so that numbers of row groups are those of the file."""
    table = pa.table({"x": [1, 2]})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for part in (table[:0], table, table[:0]):
            writer.write_table(part)

    described = describe_file(Store(str(tmp_path)), "a.parquet")

    assert [group.rows for group in described.file.row_groups] == [0, 2, 0]
    assert (described.fields[0].minimum, described.fields[0].maximum) == (1, 2)


def test_a_footer_may_be_longer_than_one_read(tmp_path: Path) -> None:
    """Many row groups make a footer that the end of the file does not hold at once."""
    described = _described(tmp_path, pa.table({"x": range(2000)}), row_group_size=2)

    assert [group.rows for group in described.file.row_groups] == [2] * 1000


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(0, 60),
    ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), max_size=6),
    block=st.integers(1, 17),
)
def test_digests_do_not_depend_on_blocks(
    tmp_path_factory: pytest.TempPathFactory, size: int, ranges: list[list[int]], block: int
) -> None:
    """Ranges in any order, touching or overlapping, have the digest of their bytes."""
    content = bytes(range(size))
    (tmp_path_factory.getbasetemp() / "content").write_bytes(content)
    spans = [(min(start, size), min(stop, size)) for start, stop in ranges]
    told: list[int] = []

    digests = digest_file(
        Store(str(tmp_path_factory.getbasetemp())),
        "content",
        size,
        spans,
        on_bytes=told.append,
        block_bytes=block,
    )

    assert digests.sha256 == hashlib.sha256(content).hexdigest()
    assert digests.ranges == tuple(
        xxhash.xxh3_64_hexdigest(content[start:stop]) for start, stop in spans
    )
    assert sum(told) == size
    assert all(part <= block for part in told)


class _Keys(pe.KmsClient):  # type: ignore[misc]  # pyarrow ships no types
    """Keeps keys safe from nobody."""

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)


def _encrypted(path: Path, *, plaintext_footer: bool) -> None:
    factory = pe.CryptoFactory(lambda _: _Keys())
    configuration = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"columns": ["x"]}, plaintext_footer=plaintext_footer
    )
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    table = pa.table({"x": [1, 2], "y": [3, 4]})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


def _two_of_a_name(path: Path) -> None:
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], ["x", "x"]), path)


def _cut(path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(100)}), path)
    path.write_bytes(path.read_bytes()[:-5])


def _other_footer(path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(100)}), path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + content[-300:])


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda path: None, "is missing"),
        (lambda path: path.touch(), "is no readable Parquet file: it does not end like one"),
        (lambda path: path.write_text("a,b\n1,2\n" * 9), "is no readable Parquet file"),
        (lambda path: path.write_bytes(b"PAR1"), "is no readable Parquet file"),
        (lambda path: path.write_bytes(b"\xff" * 20 + b"PAR1"), "and a footer of"),
        (lambda path: path.write_bytes(b"\0" * 20 + b"PAR1"), "is no readable Parquet file"),
        (_cut, "does not end like one"),
        (_other_footer, "is "),
        (_two_of_a_name, "has more than one column x"),
        (lambda path: _encrypted(path, plaintext_footer=False), "is encrypted"),
        (lambda path: _encrypted(path, plaintext_footer=True), "is encrypted"),
        (lambda path: pq.write_table(pa.table({}), path), "has no columns"),
    ],
)
def test_what_is_no_data_is_named(
    tmp_path: Path, write: Callable[[Path], None], expected: str
) -> None:
    """Whatever else has such a name is refused with the file's name, and ends nothing else."""
    path = tmp_path / "a.parquet"
    write(path)

    with pytest.raises(DataError) as caught:
        describe_file(Store(str(tmp_path)), "a.parquet")
    assert str(caught.value).startswith(f"{path} ")
    assert expected in str(caught.value)


@pytest.mark.parametrize("change", ["replaced", "cut", "removed"])
def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, change: str) -> None:
    """A description is of one state of the file: whoever still writes is found out."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(100)}), path)

    def interfere(_: object) -> None:
        if change == "replaced":
            pq.write_table(pa.table({"x": np.arange(100) + 1}), path)
        elif change == "cut":
            os.truncate(path, 50)
        else:
            path.unlink()

    with pytest.raises(
        DataError, match=r"a\.parquet (was changed|became shorter|was removed) while"
    ):
        describe_file(Store(str(tmp_path)), "a.parquet", on_footer=interfere)
