"""Row groups by number, out of files that may not be what the manifest says."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from footplate.data import DataManifest, read_manifest
from footplate.data.create import create_manifest
from footplate.data.mapped_files import Views
from footplate.data.node_cache import NodeCache
from footplate.data.reader import RowGroupReader
from footplate.data.skipping import SkipBudget
from footplate.errors import DataError
from footplate.store import Store

# Row groups of each file; groups of one row and a short last one among them.
_FILES = {"a.parquet": 4, "b.parquet": 1, "c.parquet": 3}
_ROWS_PER_FILE = 10
_ROWS = _ROWS_PER_FILE * len(_FILES)
# Over all files.
_GROUPS = 3 + 10 + 4


def _table(first: int) -> pa.Table:
    numbers = np.arange(first, first + _ROWS_PER_FILE)
    return pa.table(
        {
            "number": numbers,
            "text": [f"sample {number}" for number in numbers],
            "tokens": [list(range(number % 4)) for number in numbers],
            "bytes": pa.array([bytes([number] * 5) for number in numbers], pa.binary(5)),
            "pair": [{"left": number, "right": -number} for number in numbers],
        }
    )


_SAMPLES = pa.concat_tables([_table(10 * index) for index in range(3)]).to_pylist()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three files and their manifest."""
    folder = tmp_path_factory.mktemp("made")
    for index, (name, rows_per_group) in enumerate(_FILES.items()):
        table = _table(index * _ROWS_PER_FILE)
        pq.write_table(table, folder / name, row_group_size=rows_per_group)
    return Path(create_manifest(str(folder), name="samples").uri)


@pytest.fixture
def manifest_file(made: Path, tmp_path: Path) -> Path:
    """The manifest of a copy of these files."""
    shutil.copytree(made.parent, tmp_path / "data")
    return tmp_path / "data" / made.name


@pytest.fixture
def folder(manifest_file: Path) -> Path:
    """The folder of these files."""
    return manifest_file.parent


@pytest.fixture
def part(manifest_file: Path) -> tuple[DataManifest, Store]:
    """The manifest and its store."""
    return read_manifest(str(manifest_file))


@pytest.fixture
def reader(part: tuple[DataManifest, Store]) -> RowGroupReader:
    """A reader of all columns."""
    return RowGroupReader([part])


def _taken(reader: RowGroupReader, *ids: int) -> list[dict[str, object]]:
    """Samples by their numbers, read as tasks read."""
    groups, rows = reader.locate(np.array(ids, dtype=np.int64))
    needed = sorted(set(groups.tolist()))
    tables = dict(zip(needed, reader.read_all(needed), strict=True))
    where = zip(groups.tolist(), rows.tolist(), strict=True)
    return [tables[group].slice(row, 1).to_pylist()[0] for group, row in where]


def _flip(file: Path, position: int, bits: int = 0xFF) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= bits
    file.write_bytes(content)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(0, _ROWS - 1), max_size=60))
def test_samples_come_in_the_order_asked_for(reader: RowGroupReader, ids: list[int]) -> None:
    """Any samples of any files come in any order, as often as they are asked for."""
    assert _taken(reader, *ids) == [_SAMPLES[number] for number in ids]


def test_row_groups_come_as_they_are(reader: RowGroupReader) -> None:
    """The row groups of all files, one after the other, are all of the samples."""
    tables = [reader.read(group) for group in range(_GROUPS)]

    assert [row for table in tables for row in table.to_pylist()] == _SAMPLES
    assert [table.num_rows for table in tables] == [4, 4, 2, *[1] * 10, 3, 3, 3, 1]


def test_only_the_asked_columns_come(part: tuple[DataManifest, Store]) -> None:
    """Columns are left out where they are read, and come in the order asked for."""
    reader = RowGroupReader([part], ["tokens", "number"])

    assert [list(row.items()) for row in _taken(reader, 29, 0)] == [
        [("tokens", [0]), ("number", 29)],
        [("tokens", []), ("number", 0)],
    ]
    assert list(reader.fields) == ["tokens", "number"]


def test_only_the_asked_columns_are_looked_at(
    part: tuple[DataManifest, Store], folder: Path
) -> None:
    """What is wrong with another column does not matter."""
    _flip(folder / "a.parquet", part[0].files[0].row_groups[1].offsets[1])

    assert RowGroupReader([part], ["number", "bytes"]).read(1).num_rows == 4


def test_an_unknown_column_is_named(part: tuple[DataManifest, Store]) -> None:
    """A column that is not there is refused at once, with those that are."""
    with pytest.raises(DataError, match="has no column label") as caught:
        RowGroupReader([part], ["number", "label"])
    assert "number, text" in str(caught.value)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_lies_there_as_it_is_needs_no_cache(tmp_path: Path, compression: str) -> None:
    """The kernel keeps it for all processes; what takes decoding is decoded once for all."""
    how: dict[str, Any] = {"compression": compression, "use_dictionary": False}
    pq.write_table(pa.table({"x": np.arange(1000)}), tmp_path / "x.parquet", **how)
    part = read_manifest(create_manifest(str(tmp_path), name="x").uri)
    cache = tmp_path / "cache"
    reader = RowGroupReader([part], cache=NodeCache(cache, 1 << 20))

    seen = Views()
    assert reader.read(0, None, seen).column("x").to_pylist() == list(range(1000))
    assert bool(list(cache.glob("*.arrow"))) == (compression == "zstd")
    assert seen.are_unchanged
    # Who does not copy it at once cannot look at a file that may change.
    reader.read(0)
    assert list(cache.glob("*.arrow"))


def test_parts_follow_each_other(made: Path, part: tuple[DataManifest, Store]) -> None:
    """Row groups and rows of a mixture are numbered through."""
    reader = RowGroupReader([part, read_manifest(str(made))], ["number"])

    assert reader.read(_GROUPS + 1).to_pydict() == {"number": [4, 5, 6, 7]}
    assert [row["number"] for row in _taken(reader, 59, 0, 30)] == [29, 0, 0]
    assert str(made.parent) in reader.name(_GROUPS)


def test_parts_are_of_one_schema(tmp_path: Path, part: tuple[DataManifest, Store]) -> None:
    """What cannot be in one batch is refused before anything is read."""
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"number": [1]}), tmp_path / "other" / "other.parquet")
    other = read_manifest(create_manifest(str(tmp_path / "other"), name="other").uri)

    with pytest.raises(DataError, match="data set other differs from samples in its columns"):
        RowGroupReader([part, other])


def test_lengths_are_those_of_the_lists(reader: RowGroupReader) -> None:
    """The rows of a row group have as many values as are stored, empty lists none."""
    assert reader.lengths(1, "tokens").tolist() == [0, 1, 2, 3]
    assert reader.lengths(1, "tokens").tolist() == [0, 1, 2, 3]
    assert reader.read(1).num_rows == 4
    with pytest.raises(DataError, match="column number has no lists"):
        reader.lengths(0, "number")


def test_a_row_group_is_kept_for_who_asks_next(reader: RowGroupReader, folder: Path) -> None:
    """Tasks of one pool that follow each other need the same row groups."""
    before = _taken(reader, 12, 3, 3, 29)
    for name in _FILES:
        (folder / name).unlink()

    assert _taken(reader, 12, 3, 3, 29) == before
    with pytest.raises(DataError, match="no such file"):
        _taken(reader, 13)


def _missing(file: Path) -> None:
    file.unlink()


def _truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _other_bytes(file: Path) -> None:
    file.write_bytes(b"PAR1 is how this begins, and how it ends: PAR1")


def _zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


_DAMAGES: dict[Callable[[Path], None], str] = {
    _missing: "no such file",
    _truncated: r"the file has \d+ bytes, not \d+",
    _empty: r"the file has 0 bytes, not \d+",
    _other_bytes: r"the file has 46 bytes, not \d+",
    _zeros: "the bytes of column number are others",
}


@pytest.mark.parametrize("damage", _DAMAGES)
@pytest.mark.parametrize("was_open", [False, True])
def test_an_unreadable_file_is_named(
    reader: RowGroupReader, folder: Path, damage: Callable[[Path], None], was_open: bool
) -> None:
    """A file that is missing, cut off or overwritten ends in an error that says which and how."""
    if was_open:
        reader.read(4)
    damage(folder / "b.parquet")

    assert reader.read(0).num_rows == 4
    expected = rf"row group 2 of {folder}/b\.parquet cannot be read: {_DAMAGES[damage]}"
    for _ in range(2):
        with pytest.raises(DataError, match=expected):
            reader.read(5)


@pytest.mark.parametrize("column", range(5))
def test_each_damaged_column_is_named(
    part: tuple[DataManifest, Store], folder: Path, column: int
) -> None:
    """One wrong byte anywhere in the data of a row group is found, and said where."""
    (name, *_), file = _FILES, part[0].files[0]
    for index, group in enumerate(file.row_groups):
        for position in (group.offsets[column], group.offsets[column] + group.sizes[column] - 1):
            _flip(folder / name, position)
            expected = (
                rf"row group {index} of {folder}/{name} cannot be read: "
                rf"the bytes of column {part[0].fields[column].name} are others"
            )
            with pytest.raises(DataError, match=expected):
                RowGroupReader([part]).read(index)
            _flip(folder / name, position)
    assert RowGroupReader([part]).read(0).num_rows == 4


def _rows_or_error(part: tuple[DataManifest, Store]) -> list[object] | DataError:
    reader = RowGroupReader([part])
    try:
        return [row for group in range(3) for row in reader.read(group).to_pylist()]
    except DataError as error:
        return error


def test_a_damaged_footer_is_no_other_data(part: tuple[DataManifest, Store], folder: Path) -> None:
    """A wrong bit behind the data, wherever it is, leads to the right samples or to an error."""
    file = folder / "a.parquet"
    last = part[0].files[0].row_groups[-1]
    begin, size = last.offsets[-1] + last.sizes[-1], part[0].files[0].size
    outcomes = []
    for position in range(begin, size, 3):
        _flip(file, position, 1 << position % 8)
        outcomes.append(_rows_or_error(part))
        _flip(file, position, 1 << position % 8)

    errors = [outcome for outcome in outcomes if isinstance(outcome, DataError)]
    assert len(errors) > len(outcomes) // 4
    for error in errors:
        assert f"of {file} cannot be read: " in error.message
    assert all(each == _SAMPLES[:10] for each in outcomes if not isinstance(each, DataError))


def test_another_schema_is_refused(part: tuple[DataManifest, Store], folder: Path) -> None:
    """A column that has another name in the footer is refused, although its bytes are right."""
    file = folder / "a.parquet"
    content = file.read_bytes()
    begin = len(content) - int.from_bytes(content[-8:-4], "little") - 8
    file.write_bytes(content[:begin] + content[begin:].replace(b"number", b"member"))

    with pytest.raises(DataError, match="the file differs from its manifest in its columns"):
        RowGroupReader([part], ["text"]).read(0)


def test_many_threads_read_at_once(reader: RowGroupReader) -> None:
    """Each gets the row group it has asked for, whoever has fetched the footer."""
    found: dict[tuple[int, int], list[object]] = {}
    barrier = threading.Barrier(8)

    def read(me: int) -> None:
        barrier.wait()
        for group in range(_GROUPS):
            found[me, group] = reader.read(group).to_pylist()

    threads = [threading.Thread(target=read, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for me in range(8):
        assert [row for group in range(_GROUPS) for row in found[me, group]] == _SAMPLES


def _damage(part: tuple[DataManifest, Store], group: int) -> None:
    """Damage a row group of the last file, which are numbered from 13 over all files."""
    assert part[1].folder is not None
    described = part[0].files[2].row_groups[group - 13]
    _flip(part[1].folder / "c.parquet", described.offsets[0])


def test_a_damaged_row_group_is_replaced_within_the_budget(
    part: tuple[DataManifest, Store], folder: Path
) -> None:
    """The rows of the next one that can be read take its place, and it is counted once."""
    for group in (13, 14, 16):
        _damage(part, group)
    told: list[tuple[str, int]] = []
    skipping = SkipBudget(7, on_skip=lambda name, rows: told.append((name, rows)))
    reader = RowGroupReader([part], ["number"], skipping=skipping)

    for _ in range(2):
        assert reader.read(13).column("number").to_pylist() == [26, 27, 28]
        assert reader.read(14).column("number").to_pylist() == [26, 27, 28]
        assert reader.read(16).column("number").to_pylist() == [0]
    names = [f"row group {index} of {folder}/c.parquet" for index in (0, 1, 3)]
    assert told == [(names[0], 3), (names[1], 3), (names[2], 1)]
    assert reader.skipped == dict(told)


def test_what_replaces_has_as_many_rows(part: tuple[DataManifest, Store]) -> None:
    """A row group is replaced by a smaller one whose rows come again and again."""
    _damage(part, 15)
    reader = RowGroupReader([part], ["number"], skipping=SkipBudget(3))

    assert reader.read(15).column("number").to_pylist() == [29, 29, 29]


def test_too_much_damage_names_all_of_it(part: tuple[DataManifest, Store], folder: Path) -> None:
    """Beyond the budget reading ends with all that is wrong so far."""
    for group in (13, 14):
        _damage(part, group)
    reader = RowGroupReader([part], skipping=SkipBudget(5))

    with pytest.raises(DataError) as caught:
        reader.read(13)
    for index in (0, 1):
        assert f"  row group {index} of {folder}/c.parquet: 3 rows" in caught.value.message
    assert "6 rows cannot be read, and 5 may be replaced" in caught.value.message


def test_a_data_set_of_nothing_but_damage_cannot_be_read(
    part: tuple[DataManifest, Store], folder: Path
) -> None:
    """However much may be replaced, something has to be there."""
    for name in _FILES:
        (folder / name).unlink()
    reader = RowGroupReader([part], skipping=SkipBudget(1000))

    with pytest.raises(DataError, match=r"no row group can be read: .*no such file"):
        reader.read(4)
    assert sum(reader.skipped.values()) == _ROWS


def test_what_others_have_met_counts_too(part: tuple[DataManifest, Store], folder: Path) -> None:
    """Each row group once, whoever met it; beyond the budget reading ends."""
    _damage(part, 13)
    budget = SkipBudget(6)
    reader = RowGroupReader([part], ["number"], skipping=budget)
    reader.read(13)

    mine, other = (f"row group {index} of {folder}/c.parquet" for index in (0, 1))
    budget.count({mine: 3})
    budget.count({mine: 3, other: 3})
    assert reader.skipped == {mine: 3, other: 3}

    with pytest.raises(DataError, match="9 rows cannot be read, and 6 may be replaced") as caught:
        budget.count({"row group 7 of elsewhere": 3})
    assert f"  {other}: 3 rows" in caught.value.message
