"""Data sets are built whole, once, and with exactly the samples that were given."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.data import DataManifest, Preparation, read_manifest, verify_files
from footplate.data.build import BuildProgress, build
from footplate.data.files import planned_files, write_file
from footplate.data.shards import WORK_FOLDER, Shaping, make_shard, shards_of
from footplate.errors import DataError, StoreFullError, UserCodeError
from footplate.store import Store

_DEADLINE_S = 60


def samples(item: list[int]) -> dict[str, Any]:
    """Samples that tell their own number."""
    numbers = np.arange(*item)
    return {"pair": np.stack([numbers, -numbers], axis=1), "number": numbers}


def _preparation(rows: int = 10, **changes: Any) -> Preparation:
    values: dict[str, Any] = {"name": "pairs", "source": [[0, rows]], "transform": samples}
    return Preparation(**(values | changes))


def _build(folder: Path, preparation: Preparation, key: Any = None, **arguments: Any) -> Path:
    store = Store(str(folder))
    return Path(build(preparation, store, key=key, folder=Path(__file__).parent, **arguments))


def _read(manifest_file: Path) -> tuple[DataManifest, pa.Table]:
    manifest, store = read_manifest(str(manifest_file))
    verify_files(manifest, store, depth="full")
    files = [pq.read_table(io.BytesIO(store.get(file.path))) for file in manifest.files]
    return manifest, pa.concat_tables(files)


def _visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def _all(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_manifest_says_what_was_written(tmp_path: Path) -> None:
    """Files, row groups and schema are those of the Parquet files; of the work nothing is left."""
    path = _build(tmp_path, _preparation(rows_per_group=2, rows_per_file=4))

    manifest, table = _read(path)
    assert path.name == f"pairs-{manifest.version}.json"
    assert [(file.path, [group.rows for group in file.row_groups]) for file in manifest.files] == [
        ("part-00000.parquet", [2, 2]),
        ("part-00001.parquet", [2, 2]),
        ("part-00002.parquet", [2]),
    ]
    pair, number = manifest.fields
    assert pair.form == "fixed_size_binary[16] (int64 of shape [2])"
    assert (number.form, number.nulls, number.minimum, number.maximum) == ("int64", 0, 0, 9)
    assert table.column("number").to_pylist() == list(range(10))
    assert _all(path.parent) == sorted([path.name, *(file.path for file in manifest.files)])


def test_only_what_can_be_read_again_is_a_compression() -> None:
    """A wrong name is an error before anything is made, which says what there is."""
    with pytest.raises(DataError, match="compression of data set pairs is 'zst'") as caught:
        _preparation(compression="zst")
    assert "none or zstd" in str(caught.value)


def test_samples_of_a_fixed_size_can_lie_as_they_are(tmp_path: Path) -> None:
    """Uncompressed and without a dictionary: so they are read without being decoded."""
    for compression, expected in (("zstd", "ZSTD"), ("none", "UNCOMPRESSED")):
        path = _build(tmp_path / compression, _preparation(compression=compression))
        manifest, table = _read(path)
        footer = pq.read_metadata(path.parent / manifest.files[0].path)
        column = footer.row_group(0).column(0)
        assert (column.compression, column.has_dictionary_page) == (expected, False)
        assert table.column("number").to_pylist() == list(range(10))


@settings(deadline=None, max_examples=30)
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    items_per_shard=st.integers(1, 8),
    rows_per_group=st.integers(1, 7),
    rows_per_file=st.integers(1, 20),
)
def test_layout_does_not_depend_on_the_shards(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    items_per_shard: int,
    rows_per_group: int,
    rows_per_file: int,
) -> None:
    """However items are shared out, the same samples give the same files, full but for the last."""
    folder = tmp_path_factory.mktemp("build")
    ends = np.cumsum(counts).tolist()
    items = [[end - count, end] for end, count in zip(ends, counts, strict=True)]
    shaping = Shaping(
        transform=samples,
        folder=folder,
        store=Store(str(folder / "shards")),
        rows_per_group=rows_per_group,
        compression="zstd",
    )

    records = [make_shard(shaping, shard) for shard in reversed(shards_of(items, items_per_shard))]
    planned = planned_files(records[::-1], rows_per_file)
    files = [write_file(shaping, file).file for file in reversed(planned)][::-1]

    whole = _preparation(ends[-1], rows_per_group=rows_per_group, rows_per_file=rows_per_file)
    manifest, table = _read(_build(folder / "whole", whole))
    assert tuple(files) == manifest.files
    assert table.column("number").to_pylist() == list(range(ends[-1]))
    assert [file.rows for file in files[:-1]] == [rows_per_file] * (len(files) - 1)
    for file in files:
        assert {group.rows for group in file.row_groups[:-1]} <= {rows_per_group}
        assert file.row_groups[-1].rows <= rows_per_group


def _in_parts(item: list[int], *, size: int) -> Iterator[dict[str, Any]]:
    for start in range(item[0], item[1], size):
        yield samples([start, min(start + size, item[1])])


def test_an_item_may_come_in_parts(tmp_path: Path) -> None:
    """What is yielded part by part, empty parts included, is what would be returned at once."""

    def with_empty_parts(item: list[int]) -> Iterator[dict[str, Any]]:
        yield samples([0, 0])
        yield from _in_parts(item, size=3)

    at_once = _read(_build(tmp_path / "a", _preparation(rows_per_group=4)))[0]
    in_parts = _preparation(rows_per_group=4, transform=with_empty_parts)

    assert _read(_build(tmp_path / "b", in_parts))[0] == at_once


def test_progress_is_told(tmp_path: Path) -> None:
    """The callback hears of items and samples that are made, then of samples that are written."""
    told: list[BuildProgress] = []

    _build(tmp_path, _preparation(5, rows_per_group=2), on_progress=told.append)

    assert [(each.stage, each.done, each.total, each.rows) for each in told] == [
        ("transforming", 0, 1, 0),
        ("transforming", 1, 1, 5),
        ("writing", 0, 5, 0),
        ("writing", 5, 5, 5),
    ]
    assert told[1].size == 5 * 3 * 8
    assert told[3].size > 0


def _not_called(item: Any) -> Any:
    raise AssertionError("the data set is there")


def test_second_time_it_is_found(tmp_path: Path) -> None:
    """The same items and key find what was built, without a call of the function."""
    built = _build(tmp_path, _preparation(), key={"length": 8, "of": ["x"]})
    found = _build(tmp_path, _preparation(transform=_not_called), key={"of": ["x"], "length": 8})

    assert found == built


def test_what_a_kill_left_beside_a_data_set_is_removed(tmp_path: Path) -> None:
    """Whoever finds it tidies up for who was killed between the manifest and that."""
    built = _build(tmp_path, _preparation())
    expected = _all(built.parent)
    work = built.parent / WORK_FOLDER
    work.mkdir()
    (work / "items-000000000-000000009.arrow").write_bytes(b"all samples once more")
    (built.parent / "part-00001.parquet#1").write_bytes(b"what the store library leaves")

    assert _build(tmp_path, _preparation(transform=_not_called)) == built
    assert _all(built.parent) == expected
    assert not work.exists()


@pytest.mark.parametrize(
    "changed",
    [{"name": "b"}, {"rows_per_group": 2}, {"rows_per_file": 2}, {"source": [[0, 4], [4, 10]]}],
)
def test_another_preparation_is_another_data_set(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Whatever changes what is written is part of the folder's name; so is the key."""
    built = _build(tmp_path, _preparation())
    keyed = _build(tmp_path, _preparation(), key=1)
    changed["items_per_shard"] = 2
    other = _build(tmp_path, _preparation(**changed))

    assert len({built.parent, keyed.parent, other.parent}) == 3
    assert _visible(tmp_path) == sorted(path.parent.name for path in (built, keyed, other))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "../a"}, "cannot name a data set"),
        ({"rows_per_group": 0}, "rows_per_group of data set pairs is 0"),
        ({"rows_per_file": -1}, "rows_per_file of data set pairs is -1"),
        ({"items_per_shard": 0}, "items_per_shard of data set pairs is 0"),
    ],
)
def test_senseless_preparations_are_refused(changed: dict[str, Any], said: str) -> None:
    """A name that leaves the folder, or sizes of nothing, are told where they are written."""
    with pytest.raises(DataError, match=said):
        _preparation(**changed)


@pytest.mark.parametrize("item", [Path("/a"), (1, 2), float("nan"), {1: "a"}, object()])
def test_items_must_be_plain(tmp_path: Path, item: Any) -> None:
    """An item that would not arrive as it is, or never the same, is refused with its number."""
    with pytest.raises(DataError, match="item 1 of the source of pairs is"):
        _build(tmp_path, _preparation(source=[[0, 1], item]))
    assert not _visible(tmp_path)


def _raising(item: Any) -> Any:
    raise FileNotFoundError("the source is gone")


def _late(item: list[int]) -> Iterator[Any]:
    yield samples(item)
    raise SystemExit("enough")


@pytest.mark.parametrize(
    ("transform", "error", "said"),
    [
        (_raising, UserCodeError, "cannot be transformed: FileNotFoundError: the source is gone"),
        (_late, UserCodeError, "cannot be transformed: SystemExit: enough"),
        (lambda item: None, UserCodeError, "cannot be transformed: TypeError: 'NoneType' object"),
        (lambda item: [3], UserCodeError, "transform made int, not columns by name"),
        (lambda item: {"x": [1, None]}, DataError, "column 'x' has 1 nulls"),
        (
            lambda item: [{"x": [1]}, {"x": ["a"]}],
            DataError,
            "differs from those before it in column 'x': string instead of int64",
        ),
    ],
)
def test_a_failing_item_is_named(tmp_path: Path, transform: Any, error: Any, said: str) -> None:
    """Whatever an item comes to is said with its number and the item itself."""
    with pytest.raises(error) as caught:
        _build(tmp_path, _preparation(transform=transform))
    assert caught.value.message.startswith("item 0 of the source, [0, 10]")
    assert said in caught.value.message


def test_the_trace_is_of_the_function(tmp_path: Path) -> None:
    """The trace of a failed item begins in the user's file."""
    with pytest.raises(UserCodeError) as caught:
        _build(tmp_path, _preparation(transform=_raising))
    assert f'File "{__file__}"' in caught.value.trace.splitlines()[1]
    assert "shards.py" not in caught.value.trace


@pytest.mark.parametrize("source", [[], [[0, 0]]])
def test_no_samples_are_refused(tmp_path: Path, source: list[Any]) -> None:
    """A source that gives nothing is no data set."""
    with pytest.raises(DataError, match="no samples"):
        _build(tmp_path, _preparation(source=source))


def test_two_manifests_are_told(tmp_path: Path) -> None:
    """Which of two manifests is meant nobody can know: that is told, with what to do."""
    manifest = _build(tmp_path, _preparation())
    manifest.with_name(f"pairs-{'0' * 16}.json").write_bytes(manifest.read_bytes())

    with pytest.raises(DataError, match="holds 2 data manifests, not one") as caught:
        _build(tmp_path, _preparation())
    assert "Delete the folder" in caught.value.hint


def test_a_full_store_is_told(small_disk: Path) -> None:
    """A store without space is an error of its own, and no data set appears."""
    noise = np.random.default_rng(0).integers(256, size=(100, 10_000), dtype=np.uint8)

    with pytest.raises(StoreFullError, match="no space left"):
        _build(small_disk, _preparation(transform=lambda item: {"x": noise}))
    assert not list(small_disk.glob("*/*.json"))


def _script(body: str, folder: Path) -> subprocess.Popen[str]:
    """A Python process with the helpers of this module and ``folder`` at hand."""
    code = f"""\
import importlib.util, os, signal, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("helpers", {__file__!r})
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
folder = Path({str(folder)!r})
{body}"""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_killed_build_counts_for_nothing(tmp_path: Path) -> None:
    """After a kill there is no data set; the next build makes it and removes the leftovers."""
    killed = _script(
        """
def killed(item):
    yield helpers.samples(item)
    os.kill(os.getpid(), signal.SIGKILL)
helpers._build(folder, helpers._preparation(100, transform=killed))
""",
        tmp_path,
    )
    _, errors = killed.communicate(timeout=_DEADLINE_S)
    assert killed.returncode == -signal.SIGKILL, errors
    (place,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert not list(place.glob("*.json"))
    (place / "part-00000.parquet#1").write_bytes(b"what the store library leaves")

    path = _build(tmp_path, _preparation(100))

    assert path.parent == place
    assert _all(place) == [path.name, "part-00000.parquet"]
    assert _read(path)[0].rows == 100


def test_two_at_once_build_one(tmp_path: Path) -> None:
    """The second process waits for the first one's data set instead of building its own."""
    first = _script(
        """
def waiting(item):
    (folder / "first").touch()
    while not (folder / "second").exists():
        time.sleep(0.01)
    return helpers.samples(item)
print(helpers._build(folder, helpers._preparation(200, transform=waiting)))
""",
        tmp_path,
    )
    second = _script(
        """
while not (folder / "first").exists():
    time.sleep(0.01)
(folder / "second").touch()
print(helpers._build(folder, helpers._preparation(200, transform=helpers._not_called)))
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
    """When the system takes no more bytes the error says where."""
    limited = _script(
        """
import resource
from footplate.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    helpers._build(folder, helpers._preparation(5000))
except StoreError as error:
    print(error.message)
""",
        tmp_path,
    )
    output, errors = limited.communicate(timeout=_DEADLINE_S)

    assert output.startswith("cannot write to /"), errors
    assert not errors


def test_memory_is_bounded_by_row_groups(tmp_path: Path) -> None:
    """An item of many samples, made part by part, never is in memory as a whole."""
    before = pa.total_allocated_bytes()
    peaks: list[int] = []

    def watched(item: list[int]) -> Iterator[dict[str, Any]]:
        for part in _in_parts(item, size=1000):
            peaks.append(pa.total_allocated_bytes() - before)
            yield {"x": np.zeros((1000, 1000), np.uint8), **part}

    _build(tmp_path, _preparation(50_000, transform=watched, rows_per_group=2000))

    assert max(peaks) < 10_000_000  # of 50 MB


def test_partial_functions_are_called(tmp_path: Path) -> None:
    """Options reach the function bound to it, as recipes do."""
    path = _build(tmp_path, _preparation(transform=partial(_in_parts, size=2)))

    assert _read(path)[0].rows == 10


def test_a_shard_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """It is not the folder for temporary files that something is wrong with."""
    store = Store(str(tmp_path))
    shaping = Shaping(
        transform=samples, folder=tmp_path, store=store, rows_per_group=5, compression="zstd"
    )
    (shard,) = shards_of([[0, 10]], None)
    record = make_shard(shaping, shard)
    file = tmp_path / shard.path
    file.write_bytes(file.read_bytes()[:200])
    (planned,) = planned_files([record], 10)

    with pytest.raises(DataError, match=rf"{shard.path}, which this build has written") as caught:
        write_file(shaping, planned)
    assert f"Remove it and {file}.json" in caught.value.hint
