"""Samples by number, out of files that may not be what the manifest says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from footplate.data import read_manifest
from footplate.data.build import write_manifest
from footplate.data.reader import SampleReader, open_reader
from footplate.errors import DataError

# Row groups of each file; groups of one row and a short last one among them.
_FILES = {"a.parquet": 4, "b.parquet": 1, "c.parquet": 3}
_ROWS_PER_FILE = 10
_ROWS = _ROWS_PER_FILE * len(_FILES)


def _table(first: int) -> pa.Table:
    numbers = np.arange(first, first + _ROWS_PER_FILE)
    return pa.table({"number": numbers, "text": [f"sample {number}" for number in numbers]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with three files."""
    for index, (name, rows_per_group) in enumerate(_FILES.items()):
        table = _table(index * _ROWS_PER_FILE)
        pq.write_table(table, tmp_path / name, row_group_size=rows_per_group)
    return tmp_path


@pytest.fixture
def manifest_file(folder: Path) -> Path:
    """The manifest of the files."""
    return write_manifest(folder, name="samples")


@pytest.fixture
def reader(manifest_file: Path) -> SampleReader:
    """A reader of all columns."""
    return SampleReader(*read_manifest(str(manifest_file)))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(0, _ROWS - 1), min_size=1, max_size=60))
def test_samples_come_in_the_order_asked_for(reader: SampleReader, ids: list[int]) -> None:
    """Any samples of any files come in any order, as often as they are asked for."""
    table = reader.take(np.array(ids))

    assert table.column("number").to_pylist() == ids
    assert table.column("text").to_pylist() == [f"sample {number}" for number in ids]


def test_only_the_asked_columns_come(manifest_file: Path) -> None:
    """Columns are left out where they are read."""
    reader = SampleReader(*read_manifest(str(manifest_file)), columns=["text"])

    assert reader.take(np.array([29, 0])).to_pydict() == {"text": ["sample 29", "sample 0"]}


def test_an_unknown_column_is_named(manifest_file: Path) -> None:
    """A column that is not there is refused at once, with those that are."""
    with pytest.raises(DataError, match="has no column label") as caught:
        SampleReader(*read_manifest(str(manifest_file)), columns=["number", "label"])
    assert "number, text" in str(caught.value)


def test_one_reader_a_process(manifest_file: Path) -> None:
    """Whoever asks for the same data again gets the reader that is open."""
    first = open_reader(str(manifest_file), ("text",), None, None)

    assert open_reader(str(manifest_file), ("text",), None, None) is first
    assert open_reader(str(manifest_file), None, None, None) is not first


def _missing(file: Path) -> None:
    file.unlink()


def _truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _other_bytes(file: Path) -> None:
    file.write_bytes(b"PAR1 is how this begins, and how it ends: PAR1")


def _damaged(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [_missing, _truncated, _empty, _other_bytes, _damaged])
def test_an_unreadable_file_is_named(
    reader: SampleReader, folder: Path, damage: Callable[[Path], None]
) -> None:
    """A file that is missing, cut off or overwritten ends in an error that says which and where."""
    damage(folder / "b.parquet")

    assert reader.take(np.array([0, 29])).num_rows == 2
    with pytest.raises(DataError, match=rf"row group 2 of {folder}/b\.parquet"):
        reader.take(np.array([0, 12]))


def test_a_file_that_vanishes_is_named(reader: SampleReader, folder: Path) -> None:
    """The same holds for a file that was there when it was opened."""
    reader.take(np.array([0]))
    (folder / "a.parquet").unlink()

    with pytest.raises(DataError, match=rf"row group 2 of {folder}/a\.parquet"):
        reader.take(np.array([9]))


def test_other_row_groups_are_refused(reader: SampleReader, folder: Path) -> None:
    """The right rows in other row groups are not what the numbers mean."""
    pq.write_table(_table(0), folder / "a.parquet", row_group_size=5)

    with pytest.raises(DataError, match=rf"row group 0 of {folder}/a\.parquet has 5 rows, not 4"):
        reader.take(np.array([0]))
    with pytest.raises(DataError, match=rf"row group 2 of {folder}/a\.parquet"):
        reader.take(np.array([8]))


@pytest.mark.parametrize(
    "table",
    [
        _table(0).rename_columns(["number", "words"]),
        _table(0).drop_columns(["text"]),
        _table(0).set_column(0, "number", pa.array(np.arange(10, dtype=np.int32))),
    ],
)
def test_another_schema_is_refused(reader: SampleReader, folder: Path, table: pa.Table) -> None:
    """A column of another name or type is refused, naming the file and what differs."""
    pq.write_table(table, folder / "a.parquet", row_group_size=4)

    with pytest.raises(DataError, match=r"the schema of .*a\.parquet differs from its manifest"):
        reader.take(np.array([0]))


def test_many_row_groups_at_once(tmp_path: Path) -> None:
    """A batch may take from more row groups than are kept, and again from the first ones."""
    table = pa.table({"number": np.arange(200)})
    pq.write_table(table, tmp_path / "many.parquet", row_group_size=2)
    reader = SampleReader(*read_manifest(str(write_manifest(tmp_path, name="many"))))
    ids = np.random.default_rng(0).permutation(200)

    for _ in range(2):
        assert reader.take(ids).column("number").to_numpy().tolist() == ids.tolist()
