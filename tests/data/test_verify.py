"""Every difference between files and their manifest is found and named exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.data import DataManifest, read_manifest, verify_files
from footplate.data.create import create_manifest
from footplate.data.progress import ReadProgress
from footplate.data.verify import Difference, find_differences
from footplate.errors import DataError
from footplate.store import Store

_DEPTHS: tuple[Literal["quick", "full"], ...] = ("quick", "full")


def _table(rows: int = 10) -> pa.Table:
    return pa.table({"number": np.arange(rows), "word": [f"w{n}" for n in range(rows)]})


def _data_set(folder: Path) -> tuple[DataManifest, Store]:
    for name in ("a.parquet", "more/b.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_table(), folder / name, row_group_size=4)
    return read_manifest(create_manifest(str(folder), name="letters").uri)


class _Seen(ReadProgress):
    """Writes down which files are done."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def finished(self, path: str) -> None:
        self.paths.append(path)


@pytest.mark.parametrize("depth", _DEPTHS)
def test_true_files_pass(tmp_path: Path, depth: Literal["quick", "full"]) -> None:
    """Files as the manifest says pass wherever they were moved, and each is told."""
    _data_set(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    (file,) = (tmp_path / "there").glob("*.json")
    seen = _Seen()

    verify_files(*read_manifest(str(file)), depth=depth, progress=seen)

    assert sorted(seen.paths) == ["a.parquet", "more/b.parquet"]


def _other_rows(path: Path) -> None:
    pq.write_table(_table(9), path, row_group_size=4)


def _other_groups(path: Path) -> None:
    pq.write_table(_table(), path, row_group_size=5)


def _other_type(path: Path) -> None:
    numbers = pa.array(np.arange(10), pa.int32())
    pq.write_table(_table().set_column(0, "number", numbers), path, row_group_size=4)


def _other_columns(path: Path) -> None:
    pq.write_table(_table().rename_columns(["number", "term"]), path, row_group_size=4)


def _other_encoding(path: Path) -> None:
    pq.write_table(_table(), path, row_group_size=4, compression="zstd")


def _garbage(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (Path.unlink, "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "bytes, not"),
        (lambda path: path.write_bytes(b""), "has 0 bytes, not"),
        (_garbage, "is no readable Parquet file"),
        (_other_rows, "more/b.parquet"),
        (_other_groups, "more/b.parquet"),
        (_other_type, "more/b.parquet"),
        (_other_columns, "more/b.parquet"),
        (_other_encoding, "more/b.parquet"),
    ],
)
@pytest.mark.parametrize("depth", _DEPTHS)
def test_what_a_footer_tells_is_found_quickly(
    tmp_path: Path,
    damage: Callable[[Path], object],
    expected: str,
    depth: Literal["quick", "full"],
) -> None:
    """Missing, cut off, replaced: the file is named, and no other one."""
    manifest, store = _data_set(tmp_path)
    damage(tmp_path / "more/b.parquet")

    found = find_differences(manifest, store, depth=depth)

    assert {difference.path for difference in found} == {"more/b.parquet"}
    assert any(expected in difference.what for difference in found)
    assert all(f"{tmp_path}/more/b.parquet" in difference.what for difference in found)


def _padded(path: Path, size: int) -> None:
    """Make a Parquet file as long as another one, with bytes that nobody reads."""
    content = path.read_bytes()
    missing = size - len(content)
    assert missing >= 0
    footer = int.from_bytes(content[-8:-4], "little") + 8
    path.write_bytes(content[:-footer] + bytes(missing) + content[-footer:])


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (_other_type, "differs in column 'number': int32 instead of int64"),
        (_other_rows, "row group 2 of {} has 1 rows, not 2"),
        (_other_groups, "{} has 2 row groups, not 3"),
        (_other_encoding, "row group 0 of {}: column 'number' is at bytes"),
    ],
)
def test_a_file_of_the_same_size_is_looked_into(
    tmp_path: Path, write: Callable[[Path], None], expected: str
) -> None:
    """Where the size gives nothing away, the footer says what differs."""
    path = tmp_path / "a.parquet"
    pq.write_table(_table(), path, row_group_size=4)
    _padded(path, path.stat().st_size + 2000)
    manifest, store = read_manifest(create_manifest(str(tmp_path), name="a").uri)
    write(path)
    _padded(path, manifest.files[0].size)

    found = find_differences(manifest, store, depth="quick")

    assert any(expected.format(path) in difference.what for difference in found)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_changed_byte_is_named_exactly(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A byte of a column: file, row group and column are named; any other byte: the file."""
    folder = tmp_path_factory.mktemp("data")
    manifest, store = _data_set(folder)
    file = manifest.files[1]
    position = data.draw(st.integers(0, file.size - 1))
    content = bytearray((folder / file.path).read_bytes())
    content[position] ^= data.draw(st.integers(1, 255))
    (folder / file.path).write_bytes(content)

    found = find_differences(manifest, store, depth="full")

    assert found
    assert {difference.path for difference in found} == {file.path}
    for number, group in enumerate(file.row_groups):
        for index, field in enumerate(manifest.fields):
            if 0 <= position - group.offsets[index] < group.sizes[index]:
                what = f"row group {number} of {folder}/{file.path}: column {field.name!r}"
                assert found == [
                    Difference(file.path, f"{what} has another content", number, field.name)
                ]
                assert not find_differences(manifest, store, depth="quick")


def test_every_difference_is_named_at_once(tmp_path: Path) -> None:
    """All files that differ are told in one error, with what to do."""
    manifest, store = _data_set(tmp_path)
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "more/b.parquet").write_bytes(b"shorter")

    with pytest.raises(DataError) as caught:
        verify_files(manifest, store)
    assert f"{tmp_path}/a.parquet is missing" in caught.value.message
    assert f"{tmp_path}/more/b.parquet has 7 bytes, not" in caught.value.message
    assert "footplate dataset create" in caught.value.hint


def test_a_little_data_is_read_whole_before_a_run(tmp_path: Path) -> None:
    """Without a depth the digests of a small data set are compared, those of a large one not."""
    manifest, store = _data_set(tmp_path)
    path = tmp_path / "a.parquet"
    content = bytearray(path.read_bytes())
    content[manifest.files[0].row_groups[0].offsets[0] + 5] ^= 1
    path.write_bytes(content)

    with pytest.raises(
        DataError, match=r"row group 0 of .*a\.parquet: column 'number' has another"
    ):
        verify_files(manifest, store)
    verify_files(manifest, store, depth="quick")


@pytest.mark.parametrize(("skip_rows", "passes"), [(3, False), (4, True), (100, True)])
def test_what_may_be_replaced_is_no_reason_to_refuse(
    tmp_path: Path, skip_rows: int, *, passes: bool
) -> None:
    """A row group of four rows, two of whose columns are damaged, counts once."""
    manifest, store = _data_set(tmp_path)
    file = tmp_path / manifest.files[0].path
    content = bytearray(file.read_bytes())
    for offset in manifest.files[0].row_groups[0].offsets:
        content[offset + 4] ^= 0xFF
    file.write_bytes(content)

    if passes:
        verify_files(manifest, store, skip_rows=skip_rows)
    else:
        with pytest.raises(DataError, match="row group 0 of"):
            verify_files(manifest, store, skip_rows=skip_rows)


def test_all_rows_of_a_file_that_is_gone_are_to_be_replaced(tmp_path: Path) -> None:
    """It has ten."""
    manifest, store = _data_set(tmp_path)
    (tmp_path / "a.parquet").unlink()

    verify_files(manifest, store, skip_rows=10)
    with pytest.raises(DataError, match=r"a\.parquet"):
        verify_files(manifest, store, skip_rows=9)
