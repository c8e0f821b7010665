"""Data sets are built whole, once, and with exactly the samples that were given."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.data import DataManifest, SchemaField, read_manifest, verify_files
from footplate.data.build import build_dataset, fixed_binary_column, write_manifest
from footplate.errors import DataError

_DEADLINE_S = 60


def _table(first: int, count: int) -> pa.Table:
    """Samples that tell their own number."""
    numbers = np.arange(first, first + count)
    pairs, values = fixed_binary_column("pair", np.stack([numbers, -numbers], axis=1))
    schema = pa.schema([pairs, pa.field("number", pa.int64())])
    return pa.Table.from_arrays([values, pa.array(numbers)], schema=schema)


def _tables(*counts: int) -> Iterator[pa.Table]:
    first = 0
    for count in counts:
        yield _table(first, count)
        first += count


def _not_asked_for() -> Iterator[pa.Table]:
    raise AssertionError("the data set is there")
    yield


def _read(manifest_file: Path) -> tuple[DataManifest, pa.Table]:
    manifest, store = read_manifest(str(manifest_file))
    verify_files(manifest, store)
    files = [pq.read_table(io.BytesIO(store.get(file.path))) for file in manifest.files]
    return manifest, pa.concat_tables(files)


def _visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_manifest_says_what_was_written(tmp_path: Path) -> None:
    """Files, row groups and schema in the manifest are those of the Parquet files beside it."""
    path = build_dataset(
        tmp_path, _tables(4, 3, 3), name="pairs", key={}, rows_per_group=2, rows_per_file=4
    )

    manifest, table = _read(path)
    assert path.name == f"pairs-{manifest.version}.json"
    assert [(file.path, file.row_groups) for file in manifest.files] == [
        ("part-00000.parquet", (2, 2)),
        ("part-00001.parquet", (2, 2)),
        ("part-00002.parquet", (2,)),
    ]
    assert manifest.fields == (
        SchemaField(name="pair", type="fixed_size_binary[16]", dtype="int64", shape=(2,)),
        SchemaField(name="number", type="int64"),
    )
    assert table.equals(_table(0, 10))


@settings(deadline=None, max_examples=30)
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    rows_per_group=st.integers(1, 7),
    rows_per_file=st.integers(1, 20),
)
def test_layout_does_not_depend_on_the_tables(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    rows_per_group: int,
    rows_per_file: int,
) -> None:
    """However the samples come, the same ones give the same files, full but for the last."""
    folder = tmp_path_factory.mktemp("build")
    sizes: dict[str, Any] = {"rows_per_group": rows_per_group, "rows_per_file": rows_per_file}
    total = sum(counts)

    manifest, table = _read(build_dataset(folder, _tables(*counts), name="a", key={}, **sizes))
    at_once, _ = _read(build_dataset(folder / "b", _tables(total), name="a", key={}, **sizes))

    assert manifest == at_once
    assert table.equals(_table(0, total))
    assert [file.rows for file in manifest.files[:-1]] == [rows_per_file] * (
        len(manifest.files) - 1
    )
    for file in manifest.files:
        assert set(file.row_groups[:-1]) <= {rows_per_group}
        assert file.row_groups[-1] <= rows_per_group


def test_progress_is_told(tmp_path: Path) -> None:
    """After every row group the callback hears how many samples are written."""
    told: list[int] = []

    build_dataset(tmp_path, _tables(5), name="a", key={}, rows_per_group=2, on_rows=told.append)

    assert told == [2, 4, 5]


def test_second_time_it_is_found(tmp_path: Path) -> None:
    """The same key finds what was built, without asking for a single table."""
    built = build_dataset(tmp_path, _tables(3), name="a", key={"length": 8, "of": ["x"]})
    found = build_dataset(tmp_path, _not_asked_for(), name="a", key={"of": ["x"], "length": 8})

    assert found == built


@pytest.mark.parametrize(
    "changed", [{"key": {"length": 9}}, {"name": "b"}, {"rows_per_group": 2}, {"rows_per_file": 2}]
)
def test_another_key_is_another_data_set(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Whatever changes what is written is part of the folder's name."""
    arguments: dict[str, Any] = {"name": "a", "key": {"length": 8}}
    built = build_dataset(tmp_path, _tables(3), **arguments)
    other = build_dataset(tmp_path, _tables(3), **(arguments | changed))

    assert other.parent != built.parent
    assert _visible(tmp_path) == sorted([built.parent.name, other.parent.name])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.arange(24, dtype=">i4").reshape(4, 6),
        np.linspace(0, 1, 24).reshape(4, 6)[::-1, ::2],
        np.array([[True, False], [False, True]]),
        np.array([1.5, -2.0], dtype=np.float16),
    ],
    ids=["bytes", "big-endian", "strided", "booleans", "scalars"],
)
def test_numbers_come_back(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    """From dtype and shape in the manifest, a reader makes the array that was given."""
    field, column = fixed_binary_column("x", array)
    table = pa.Table.from_arrays([column], schema=pa.schema([field]))

    manifest, found = _read(build_dataset(tmp_path, [table], name="a", key={}))

    described = manifest.fields[0]
    assert described.shape is not None
    dtype = np.dtype(described.dtype).newbyteorder("<")
    content = b"".join(found.column("x").to_pylist())
    np.testing.assert_array_equal(
        np.frombuffer(content, dtype).reshape(-1, *described.shape), array
    )


@pytest.mark.parametrize(
    "array",
    [np.array(["a", "b"]), np.array([None]), np.zeros((3, 0)), np.array(1.0)],
    ids=["text", "objects", "nothing", "no samples"],
)
def test_what_is_no_number_is_refused(array: np.ndarray[Any, Any]) -> None:
    """Only numbers of a fixed shape make such a column."""
    with pytest.raises(DataError, match="column 'x'"):
        fixed_binary_column("x", array)


def _bytes_field(width: int, metadata: dict[str, str]) -> pa.Table:
    field = pa.field("x", pa.binary(width), metadata=metadata)
    return pa.Table.from_arrays([pa.array([b"\0" * width], field.type)], schema=pa.schema([field]))


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([], "no samples"),
        ([_table(0, 0)], "no samples"),
        ([_table(0, 1), pa.table({"number": [1]})], "number instead of pair, number"),
        ([pa.table({"x": [1]}), pa.table({"x": [1.0]})], "column 'x': double instead of int64"),
        ([pa.table({"x": [1, None]})], "column 'x' has 1 nulls"),
        ([_bytes_field(4, {"footplate.dtype": "uint8"})], "does not say what its bytes are"),
        (
            [_bytes_field(4, {"footplate.dtype": "no", "footplate.shape": "[4]"})],
            "does not say what its bytes are",
        ),
        (
            [_bytes_field(4, {"footplate.dtype": "int32", "footplate.shape": "[4]"})],
            "takes 16 bytes",
        ),
    ],
)
def test_unfit_tables_are_refused(tmp_path: Path, tables: list[pa.Table], expected: str) -> None:
    """Samples that a reader could not understand are refused, and nothing is left of them."""
    with pytest.raises(DataError, match=expected):
        build_dataset(tmp_path, tables, name="a", key={})
    assert not _visible(tmp_path)


@pytest.mark.parametrize("changed", [{"name": "../a"}, {"name": ""}, {"rows_per_group": 0}])
def test_senseless_arguments_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    """A name that leaves the folder, or row groups without rows, build nothing."""
    arguments: dict[str, Any] = {"name": "a", "key": {}} | changed

    with pytest.raises(DataError):
        build_dataset(tmp_path, _tables(1), **arguments)
    assert not list(tmp_path.iterdir())


def test_error_of_the_tables_is_passed_on(tmp_path: Path) -> None:
    """What goes wrong while samples are made is told as it is, and nothing is left."""

    def tables() -> Iterator[pa.Table]:
        yield _table(0, 10)
        raise FileNotFoundError("the source is gone")

    with pytest.raises(FileNotFoundError, match="the source is gone"):
        build_dataset(tmp_path, tables(), name="a", key={}, rows_per_group=2)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_damaged_data_set_is_not_passed_off(tmp_path: Path) -> None:
    """A data set without its manifest is told about, with what to do."""
    manifest = build_dataset(tmp_path, _tables(3), name="a", key={})
    manifest.unlink()

    with pytest.raises(DataError, match="holds 0 data manifests, not one") as caught:
        build_dataset(tmp_path, _tables(3), name="a", key={})
    assert "Delete the folder" in caught.value.hint


def _script(body: str, folder: Path) -> subprocess.Popen[str]:
    """A Python process with the helpers of this module and ``folder`` at hand."""
    code = f"""\
import importlib.util, os, signal, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("helpers", {__file__!r})
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
from footplate.data.build import build_dataset
folder = Path({str(folder)!r})
{body}"""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_killed_build_counts_for_nothing(tmp_path: Path) -> None:
    """After a kill there is no data set; the next build makes it and removes the leftovers."""
    killed = _script(
        """
def tables():
    yield helpers._table(0, 100)
    os.kill(os.getpid(), signal.SIGKILL)
build_dataset(folder, tables(), name="a", key={}, rows_per_group=10)
""",
        tmp_path,
    )
    _, errors = killed.communicate(timeout=_DEADLINE_S)
    assert killed.returncode == -signal.SIGKILL, errors
    assert not _visible(tmp_path)
    assert list(tmp_path.glob(".a-*.tmp/*/part-00000.parquet"))

    manifest, _ = _read(build_dataset(tmp_path, _tables(100), name="a", key={}, rows_per_group=10))

    assert manifest.rows == 100
    assert not list(tmp_path.glob(".*.tmp"))


def test_two_at_once_build_one(tmp_path: Path) -> None:
    """The second process waits for the first one's data set instead of building its own."""
    first = _script(
        """
def tables():
    yield helpers._table(0, 100)
    (folder / "first").touch()
    while not (folder / "second").exists():
        time.sleep(0.01)
    yield helpers._table(100, 100)
print(build_dataset(folder, tables(), name="a", key={}))
""",
        tmp_path,
    )
    second = _script(
        """
while not (folder / "first").exists():
    time.sleep(0.01)
(folder / "second").touch()
print(build_dataset(folder, helpers._not_asked_for(), name="a", key={}))
""",
        tmp_path,
    )
    try:
        answers = [process.communicate(timeout=_DEADLINE_S) for process in (first, second)]
    finally:
        first.kill()
        second.kill()

    assert answers[0][0].strip() == answers[1][0].strip() != "", answers
    assert _read(Path(answers[0][0].strip()))[0].rows == 200


def test_refused_write_is_a_store_error(tmp_path: Path) -> None:
    """When the system takes no more bytes the error says where, and nothing is left."""
    limited = _script(
        """
import resource
from footplate.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    build_dataset(folder, helpers._tables(5000), name="a", key={}, rows_per_group=1000)
except StoreError as error:
    print(error.message)
""",
        tmp_path,
    )
    output, errors = limited.communicate(timeout=_DEADLINE_S)

    assert output.startswith(f"cannot write to {tmp_path}"), errors
    assert not errors
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_existing_files_are_described_in_order(tmp_path: Path) -> None:
    """All Parquet files below the folder become one data set, sorted by path, hidden ones left."""
    for name in ("b.parquet", "a/z.parquet", "a/y.parquet", ".tmp/x.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(_table(ord(name[2]), 5), tmp_path / name, row_group_size=3)

    path = write_manifest(tmp_path, name="found")

    manifest, table = _read(path)
    assert [file.path for file in manifest.files] == ["a/y.parquet", "a/z.parquet", "b.parquet"]
    assert {file.row_groups for file in manifest.files} == {(3, 2)}
    assert table.column("number")[0].as_py() == ord("y")
    assert write_manifest(tmp_path, name="found") == path


def test_unfit_files_are_named(tmp_path: Path) -> None:
    """Files that are not there, unreadable, empty or of another schema are refused by name."""
    with pytest.raises(DataError, match=f"no Parquet files below {tmp_path}"):
        write_manifest(tmp_path, name="found")
    pq.write_table(_table(0, 3), tmp_path / "a.parquet")
    other = tmp_path / "b.parquet"

    other.symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=f"{other} is no readable Parquet file"):
        write_manifest(tmp_path, name="found")
    other.unlink()
    other.write_bytes(b"PAR1")
    with pytest.raises(DataError, match=f"{other} is no readable Parquet file"):
        write_manifest(tmp_path, name="found")
    pq.write_table(_table(0, 0), other)
    with pytest.raises(DataError, match=f"{other} has no rows"):
        write_manifest(tmp_path, name="found")
    pq.write_table(_table(0, 3).drop_columns(["pair"]), other)
    with pytest.raises(DataError, match=rf"{other} differs from a\.parquet in its columns"):
        write_manifest(tmp_path, name="found")
    assert not list(tmp_path.glob("*.json"))
