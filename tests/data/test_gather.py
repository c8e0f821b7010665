"""Batches gathered ahead of need: the planned samples, in bounded memory, for who wants them."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
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
from footplate.data.gather import gathered, gathered_at_once
from footplate.data.order import ShuffledOrder
from footplate.data.packing import PackedOrder
from footplate.data.reader import RowGroupReader
from footplate.data.selection import Selection
from footplate.data.skipping import SkipBudget
from footplate.data.tables import fixed_binary_column
from footplate.errors import DataError
from footplate.spec import Bucket, Pack
from footplate.store import Store

_ROWS = 96
_GROUP_ROWS = (7, 16, 1)  # of each file

Part = tuple[DataManifest, Store]


def _windows() -> np.ndarray[Any, Any]:
    return np.arange(_ROWS * 6, dtype=np.int32).reshape(_ROWS, 2, 3)


def _tokens(row: int) -> list[int]:
    return [row * 100 + place for place in range(row % 5)]


def _table() -> pa.Table:
    field, windows = fixed_binary_column("window", _windows())
    rows = range(_ROWS)
    columns = {
        "number": pa.array(rows, pa.int64()),
        "text": pa.array([f"sample {row}" for row in rows]),
        "vector": pa.array([[row / 2, row / 4] for row in rows], pa.list_(pa.float32(), 2)),
        "tokens": pa.array([_tokens(row) for row in rows], pa.list_(pa.int32())),
    }
    table = pa.table(columns)
    return table.append_column(field, windows)


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Part:
    """The manifest and the store of three files."""
    folder = tmp_path_factory.mktemp("data")
    for number, size in enumerate(_GROUP_ROWS):
        rows = _table().slice(number * 32, 32)
        pq.write_table(rows, folder / f"{number}.parquet", row_group_size=size)
    return read_manifest(create_manifest(str(folder), name="samples").uri)


@pytest.fixture(scope="module")
def reader(part: Part) -> RowGroupReader:
    """A reader of all columns."""
    return RowGroupReader([part])


def _plan(*steps: list[int]) -> list[tuple[int, Selection]]:
    ids = [Selection(np.array(step, dtype=np.int64)) for step in steps]
    return list(enumerate(ids))


def _gathered(
    plan: Iterable[tuple[int, Selection]], reader: RowGroupReader, **how: Any
) -> Iterator[tuple[int, dict[str, Any]]]:
    return gathered(plan, reader, **how)


def _data_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "footplate-data"]


_STEPS = st.lists(st.lists(st.integers(0, _ROWS - 1), max_size=40), max_size=12)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=_STEPS, ahead=st.sampled_from([0, 500, 3000, 1 << 20]), threads=st.integers(1, 4))
def test_any_plan_is_followed(
    reader: RowGroupReader, steps: list[list[int]], ahead: int, threads: int
) -> None:
    """Whatever is planned arrives in its order, however little memory there may be."""
    found = list(_gathered(_plan(*steps), reader, ahead_bytes=ahead, threads=threads))

    assert [step for step, _ in found] == list(range(len(steps)))
    for (_, batch), rows in zip(found, steps, strict=True):
        assert list(batch) == ["number", "text", "vector", "tokens", "window"]
        assert batch["text"] == [f"sample {row}" for row in rows]
        assert [each.tolist() for each in batch["tokens"]] == [_tokens(row) for row in rows]
        expected = {
            "number": np.array(rows, np.int64),
            "window": _windows()[rows] if rows else np.empty((0, 2, 3), np.int32),
            "vector": np.array([[row / 2, row / 4] for row in rows], np.float32).reshape(-1, 2),
        }
        for name, values in expected.items():
            assert batch[name].dtype == values.dtype
            np.testing.assert_array_equal(batch[name], values)
    assert not _data_threads()


def test_batches_can_be_written_to(reader: RowGroupReader) -> None:
    """What is done to one batch changes neither another one nor what is gathered later."""
    rows = list(range(_ROWS))
    for _, batch in _gathered(_plan(*[rows] * 9), reader):
        for name in ("number", "window", "vector"):
            assert batch[name].flags.writeable
            assert batch[name].flags.c_contiguous
            assert batch[name].sum() > 0
            batch[name][:] = 0


def test_one_batch_at_once(reader: RowGroupReader) -> None:
    """A batch that is wanted now is the same as one that was planned."""
    rows = [95, 0, 33, 0]
    (batch,) = gathered_at_once([Selection(np.array(rows))], reader)
    ((_, planned),) = _gathered(_plan(rows), reader)

    assert batch.keys() == planned.keys()
    assert batch["text"] == planned["text"]
    np.testing.assert_array_equal(batch["window"], planned["window"])


def test_buckets_are_padded(part: Part) -> None:
    """Lists become a matrix as wide as the longest of the batch, with their lengths."""
    reader = RowGroupReader([part], ["tokens", "number"])
    plan = _plan([1, 4, 3], [0, 10], [2])
    found = [batch for _, batch in _gathered(plan, reader, bucket=Bucket(column="tokens", pad=-1))]

    assert [batch["number"].tolist() for batch in found] == [[1, 4, 3], [0, 10], [2]]
    assert [batch["tokens"].tolist() for batch in found] == [
        [[100, -1, -1, -1], [400, 401, 402, 403], [300, 301, 302, -1]],
        [[], []],
        [[200, 201]],
    ]
    assert [batch["tokens_lengths"].tolist() for batch in found] == [[1, 4, 3], [0, 0], [2]]
    assert found[0]["tokens"].dtype == np.int32


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(length=st.integers(1, 30), batch_size=st.integers(1, 9), seed=st.integers(0, 9))
def test_packed_sequences_are_parts_of_documents(
    part: Part, length: int, batch_size: int, seed: int
) -> None:
    """Every sequence is full, and says of each value which of its documents it is of."""
    reader = RowGroupReader([part], ["tokens"])
    pack = Pack(column="tokens", length=length)
    order = PackedOrder(
        ShuffledOrder(part[0].group_rows, seed=seed, pool=3),
        length=length,
        group_values=[group.values[3] or 0 for file in part[0].files for group in file.row_groups],
        lengths_of=lambda group: reader.lengths(group, "tokens"),
    )
    starts = range(0, order.rows, batch_size)
    plan = ((at, order.take(0, at, min(at + batch_size, order.rows))) for at in starts)
    values, segments = [], []
    for at, batch in _gathered(plan, reader, pack=pack):
        shape = (min(batch_size, order.rows - at), length)
        assert batch["tokens"].shape == batch["tokens_segments"].shape == shape
        assert batch["tokens_segments"].dtype == np.int32
        values.extend(batch["tokens"].tolist())
        segments.extend(batch["tokens_segments"].tolist())

    for sequence, numbers in zip(values, segments, strict=True):
        documents = [value // 100 for value in sequence]
        changes = [int(one != other) for one, other in itertools.pairwise(documents)]
        assert numbers == [0, *itertools.accumulate(changes)]
    taken = sorted(itertools.chain.from_iterable(values))
    everything = {value for row in range(_ROWS) for value in _tokens(row)}
    assert len(taken) == len(set(taken)) == len(everything) // length * length
    assert set(taken) <= everything


def test_only_lists_can_be_packed(reader: RowGroupReader) -> None:
    """What has no values to join is named, with what to do."""
    selection = Selection(np.array([1]), np.array([0, 1]), np.array([0]), np.array([1]))
    with pytest.raises(DataError, match="column number cannot be packed") as caught:
        gathered_at_once([selection], reader, pack=Pack(column="tokens", length=1))
    assert 'columns = ["tokens"]' in caught.value.hint


def test_nulls_are_named_with_their_row_group(tmp_path: Path) -> None:
    """A missing number is an error that says where, not NaN."""
    pq.write_table(pa.table({"x": [1.0, 2.0, None, 4.0]}), tmp_path / "x.parquet", row_group_size=2)
    reader = RowGroupReader([read_manifest(create_manifest(str(tmp_path), name="x").uri)])
    batches = _gathered(_plan([0, 1], [1, 2]), reader)

    assert next(batches)[1]["x"].tolist() == [1.0, 2.0]
    with pytest.raises(DataError, match=r"row group 1 of .*x\.parquet: column x has 1 nulls"):
        next(batches)


@pytest.fixture
def damaged(tmp_path: Path) -> Part:
    """A file of twenty row groups of ten rows, of which the seventh is damaged."""
    pq.write_table(pa.table({"x": np.arange(200)}), tmp_path / "x.parquet", row_group_size=10)
    manifest, store = read_manifest(create_manifest(str(tmp_path), name="x").uri)
    with (tmp_path / "x.parquet").open("r+b") as file:
        file.seek(manifest.files[0].row_groups[6].offsets[0] + 20)
        file.write(b"\xff\xff")
    return manifest, store


@pytest.mark.parametrize("batch_size", [1, 3, 5, 10, 25, 60])
def test_errors_come_when_they_are_reached(damaged: Part, batch_size: int) -> None:
    """Every batch before the first one that cannot be gathered is delivered."""
    steps = [list(range(at, at + batch_size)) for at in range(0, 180, batch_size)]
    arrived: list[Any] = []
    with pytest.raises(DataError, match=r"row group 6 of .*x\.parquet cannot be read"):
        arrived.extend(
            batch["x"].tolist() for _, batch in _gathered(_plan(*steps), reader_of(damaged))
        )

    assert arrived == [step for step in steps if step[-1] < 60]
    assert not _data_threads()


def reader_of(part: Part, skip: int = 0) -> RowGroupReader:
    """A reader that may replace so many rows."""
    return RowGroupReader([part], skipping=SkipBudget(skip))


def test_damage_within_the_budget_does_not_end_it(damaged: Part) -> None:
    """Samples that cannot be read are replaced, the same ones every time."""
    reader = reader_of(damaged, skip=10)
    steps = [list(range(at, at + 8)) for at in range(0, 200, 8)]
    first, again = (
        np.concatenate([batch["x"] for _, batch in _gathered(_plan(*steps), each)])
        for each in (reader, reader_of(damaged, skip=10))
    )

    assert sum(reader.skipped.values()) == 10
    np.testing.assert_array_equal(first, again)
    expected = np.arange(200)
    expected[60:70] += 10
    np.testing.assert_array_equal(first, expected)


def test_errors_of_the_plan_come_in_their_place(reader: RowGroupReader) -> None:
    """What was planned before is delivered first."""

    def plan() -> Iterator[tuple[int, Selection]]:
        yield from _plan([1], [2], [3])
        raise DataError("no more")

    arrived: list[Any] = []
    with pytest.raises(DataError, match="no more"):
        arrived.extend(step for step, _ in _gathered(plan(), reader))
    assert arrived == [0, 1, 2]
    assert not _data_threads()


def _endless() -> Iterator[tuple[int, Selection]]:
    for step in itertools.count():
        yield step, Selection(np.arange(step, step + 8) % _ROWS)


def test_closing_ends_all_threads(reader: RowGroupReader) -> None:
    """Nothing goes on for a consumer that has gone, however it went."""
    batches = _gathered(_endless(), reader)
    assert not _data_threads()
    next(batches)
    assert _data_threads()
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert not _data_threads()

    def consume() -> None:
        for step, _ in _gathered(_endless(), reader):
            if step == 3:
                raise RuntimeError("the consumer fails")

    with pytest.raises(RuntimeError):
        consume()
    del batches
    assert not _data_threads()


def test_closing_closes_the_plan(reader: RowGroupReader) -> None:
    """The plan may have tasks of its own, which end with it."""
    closed = threading.Event()

    def plan() -> Iterator[tuple[int, Selection]]:
        try:
            yield from _endless()
        finally:
            closed.set()

    batches = gathered(plan(), reader, ahead_bytes=1000)
    next(batches)
    assert not closed.is_set()
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert closed.is_set()


class _Hanging(Store):
    """Answers the first few requests, and the others when it is told to."""

    def __init__(self, uri: str, answers: int) -> None:
        super().__init__(uri)
        self.may_answer = threading.Event()
        self.asked = threading.Semaphore(0)
        self._answers = itertools.count(answers, -1)

    @property
    def folder(self) -> None:
        """None, as of a bucket: files of this machine answer at once."""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Wait first."""
        if next(self._answers) <= 0:
            self.asked.release()
            self.may_answer.wait()
        return super().read_ranges(path, ranges)


def test_closing_waits_once_for_all_threads(part: Part) -> None:
    """A store that answers none of them does not hold up whoever leaves once for each."""
    store = _Hanging(part[1].uri, answers=1)
    batches = gathered(
        _plan(*([row] for row in range(_ROWS))), RowGroupReader([(part[0], store)]), threads=6
    )
    next(batches)
    for _ in range(6):
        store.asked.acquire()
    began = time.monotonic()
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    took_s = time.monotonic() - began
    store.may_answer.set()

    assert took_s < 8
    for thread in _data_threads():
        thread.join()


def test_the_interpreter_ends_with_unfinished_batches(part: Part) -> None:
    """A process that leaves in the middle of its data ends at once, and well."""
    manifest = f"{part[1].uri}/{part[0].file_name}"
    program = f"""
import itertools, sys
import numpy as np
from footplate.data import read_manifest
from footplate.data.gather import gathered
from footplate.data.reader import RowGroupReader
from footplate.data.selection import Selection

reader = RowGroupReader([read_manifest({manifest!r})])

def plan():
    for step in itertools.count():
        yield step, Selection(np.arange(step, step + 8) % 96)

batches = [gathered(plan(), reader, ahead_bytes=1000) for _ in range(3)]
for each in batches:
    next(each)
print("left")
sys.exit(7)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "left\n", "")


def _uncompressed(folder: Path, table: pa.Table, rows: int) -> Part:
    """The manifest of a file whose values lie there as they are."""
    how: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    pq.write_table(table, folder / "x.parquet", row_group_size=rows, **how)
    return read_manifest(create_manifest(str(folder), name="x").uri)


def test_what_was_read_does_not_change_with_its_file(tmp_path: Path) -> None:
    """Values of a fixed size of any kind are copied before anybody may overwrite the file."""
    rows = 4000
    ids = [f"{row:016}".encode() for row in range(rows)]
    field, windows = fixed_binary_column("window", np.arange(2 * rows).reshape(rows, 2))
    times = pa.array(np.arange(rows), pa.timestamp("us"))
    columns = {"id": pa.array(ids, pa.binary(16)), "number": np.arange(rows), "time": times}
    part = _uncompressed(tmp_path, pa.table(columns).append_column(field, windows), rows)
    steps = [list(range(at, at + 10)) for at in range(0, rows, 10)]
    batches = _gathered(_plan(*steps), RowGroupReader([part]))
    found = [next(batches)[1]]
    with (tmp_path / "x.parquet").open("r+b") as file:
        file.write(b"?" * part[0].files[0].size)
    found += [batch for _, batch in batches]

    def values(name: str) -> list[Any]:
        return list(itertools.chain.from_iterable(batch[name] for batch in found))

    assert values("id") == ids
    assert values("time") == times.to_pylist()
    assert values("number") == list(range(rows))
    assert np.array(values("window")).ravel().tolist() == list(range(2 * rows))


class _Overtaken(RowGroupReader):
    """Somebody writes to its file when a row group was compared, and before it is copied."""

    def __init__(self, part: Part, file: Path, contents: Iterable[bytes]) -> None:
        super().__init__([part])
        self._file = file
        self._contents = iter(contents)

    def read(self, *how: Any) -> pa.Table:
        """As always."""
        table = super().read(*how)
        for content in itertools.islice(self._contents, 1):
            with self._file.open("r+b") as file:
                file.write(content)
        return table


def test_what_was_overwritten_before_it_was_copied_is_an_error(tmp_path: Path) -> None:
    """Nothing is trained on that was not compared with the manifest."""
    part = _uncompressed(tmp_path, pa.table({"x": np.arange(4000)}), 4000)
    file = tmp_path / "x.parquet"
    reader = _Overtaken(part, file, [bytes(part[0].files[0].size)])

    with pytest.raises(DataError, match="the bytes of column x are others"):
        list(_gathered(_plan([1, 2]), reader))


def test_what_was_written_again_is_read_again(tmp_path: Path) -> None:
    """A file that has other times, and the bytes that it had, is as good as before."""
    part = _uncompressed(tmp_path, pa.table({"x": np.arange(4000)}), 4000)
    file = tmp_path / "x.parquet"
    reader = _Overtaken(part, file, [file.read_bytes()])

    ((_, batch),) = _gathered(_plan([1, 2]), reader)

    assert batch["x"].tolist() == [1, 2]


def _anonymous_bytes() -> int:
    """Memory of this process that no file is behind."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def test_many_threads_take_no_more_memory_than_row_groups_do(tmp_path: Path) -> None:
    """Where row groups are larger than what may be ahead, only those of a chunk are in memory."""
    rows, width, groups = 256, 32768, 24
    field, column = fixed_binary_column("x", np.ones((groups * rows, width), np.uint8))
    table = pa.table([column], schema=pa.schema([field]))
    part = _uncompressed(tmp_path, table, rows)
    del table, column
    reader = RowGroupReader([part])
    batches = _gathered(
        _plan(*(list(range(at, at + 32)) for at in range(0, groups * rows, 32))),
        reader,
        ahead_bytes=1 << 20,
        threads=16,
    )
    next(batches)
    before = most = _anonymous_bytes()
    for _, batch in batches:
        assert batch["x"].all()
        most = max(most, _anonymous_bytes())

    group = rows * width
    assert groups * group > 16 * group
    assert most - before <= 4 * group + 5 * (4 << 20)


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    """Of a data set that is many times larger as much is in memory as was allowed."""
    rows, width = 64, 16384
    for number in range(4):
        field, column = fixed_binary_column("x", np.zeros((8 * rows, width), np.uint8))
        table = pa.table([column], schema=pa.schema([field]))
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=rows)
    part = read_manifest(create_manifest(str(tmp_path), name="zeros").uri)
    order = ShuffledOrder(part[0].group_rows, seed=0, pool=2)
    reader = RowGroupReader([part])
    before = pa.total_allocated_bytes()
    ahead = 4 * rows * width
    most = 0
    plan = ((at, order.take(0, at, at + 8)) for at in range(0, order.rows, 8))
    tracemalloc.start()
    for _, batch in _gathered(plan, reader, ahead_bytes=ahead, threads=2):
        assert batch["x"].shape == (8, width)
        most = max(most, pa.total_allocated_bytes() - before)
    _, python_most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    group = rows * width
    assert most <= 2 * group
    # Row groups that are there and being read, and chunks.
    assert python_most <= ahead + 2 * group + 5 * (4 << 20) + (4 << 20)


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_what_is_stored_small_takes_no_more_memory_than_it_is(
    tmp_path: Path, compression: str
) -> None:
    """Rows that are nearly all zeros: a thousand times less in the file than in memory."""
    rows = np.zeros((4096, 1000), np.float32)
    rows[:, 0] = np.arange(4096)
    column = pa.FixedSizeListArray.from_arrays(rows.ravel(), 1000)
    pq.write_table(
        pa.table({"x": column}), tmp_path / "a.parquet", row_group_size=512, compression=compression
    )
    reader = RowGroupReader([read_manifest(create_manifest(str(tmp_path), name="zeros").uri)])
    assert reader.row_size == 4000
    assert reader.largest == 512 * 4000

    order = np.random.default_rng(0).permutation(4096)
    tracemalloc.start()
    for step, batch in _gathered(
        _plan(*order.reshape(-1, 32).tolist()), reader, ahead_bytes=4 << 20
    ):
        assert np.array_equal(batch["x"][:, 0], order[32 * step : 32 * step + 32])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20
