"""Files become a data set as a whole: found, read once, and described in one manifest."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from footplate.data import read_manifest, verify_files
from footplate.data.create import create_manifest
from footplate.data.progress import ReadProgress
from footplate.errors import DataError, StoreError
from footplate.store import Store
from s3_relay import S3Relay

_DEADLINE_S = 60
_NOTES = ".footplate-create"


def _table(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    words = pa.array([f"w{number}" for number in numbers], pa.string())
    return pa.table({"number": pa.array(numbers, pa.int64()), "word": words})


def _write(folder: Path, name: str, first: int, count: int = 5) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(_table(first, count), path, row_group_size=3)
    return path


class _Seen(ReadProgress):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.total: tuple[int, int] | None = None
        self.bytes = 0
        self.paths: list[str] = []

    def started(self, files: int, size: int) -> None:
        self.total = (files, size)

    def read(self, size: int) -> None:
        self.bytes += size

    def finished(self, path: str) -> None:
        self.paths.append(path)


class _Interrupting(_Seen):
    """Ctrl-C after a file is done."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def finished(self, path: str) -> None:
        super().finished(path)
        if len(self.paths) == self._after:
            raise KeyboardInterrupt


def test_files_become_one_data_set(tmp_path: Path) -> None:
    """All files below the folder, whatever their names, in the order of their paths."""
    for first, name in enumerate(("b.parquet", "a/zü #1.parquet", "a/y=2024/x.parquet")):
        _write(tmp_path, name, 10 * first)
    for name in (".tmp/x.parquet", "_temporary/0/x.parquet", "a/.x.parquet", "a/_x.parquet"):
        _write(tmp_path, name, 100)
    (tmp_path / "README.txt").write_text("no data")

    created = create_manifest(str(tmp_path), name="found")

    manifest, store = read_manifest(created.uri)
    verify_files(manifest, store, depth="full")
    paths = [file.path for file in manifest.files]
    assert paths == ["a/y=2024/x.parquet", "a/zü #1.parquet", "b.parquet"]
    assert manifest.group_rows == (3, 2) * 3
    number, word = manifest.fields
    assert (number.nulls, number.minimum, number.maximum) == (0, 0, 24)
    assert (word.minimum, word.maximum) == ("w0", "w4")
    assert created.is_new
    assert not (tmp_path / _NOTES).exists()


def test_the_same_data_is_the_same_version(tmp_path: Path) -> None:
    """A second time nothing is written; a copy elsewhere has the version of the first."""
    for folder in ("here", "there"):
        _write(tmp_path / folder, "a.parquet", 0)
    first = create_manifest(str(tmp_path / "here"), name="a")

    again = create_manifest(str(tmp_path / "here"), name="a")
    copied = create_manifest(str(tmp_path / "there"), name="a")

    assert (first.is_new, again.is_new, copied.is_new) == (True, False, True)
    assert first.uri == again.uri
    assert first.manifest == copied.manifest


def test_a_damaged_manifest_is_restored(tmp_path: Path) -> None:
    """Reading one says to write it anew, and that then is possible."""
    _write(tmp_path, "a.parquet", 0)
    first = create_manifest(str(tmp_path), name="a")
    Path(first.uri).write_bytes(first.manifest.to_json().replace(b"number", b"member"))
    with pytest.raises(DataError, match="was changed after it was written"):
        read_manifest(first.uri)

    again = create_manifest(str(tmp_path), name="a")

    assert again.uri == first.uri
    assert read_manifest(first.uri)[0] == first.manifest


def test_other_versions_are_told(tmp_path: Path) -> None:
    """Whoever describes changed data hears of what was described before, of this name alone."""
    path = _write(tmp_path, "a.parquet", 0)
    first = create_manifest(str(tmp_path), name="a")
    create_manifest(str(tmp_path), name="a-b")
    path.unlink()
    _write(tmp_path, "a.parquet", 1)

    second = create_manifest(str(tmp_path), name="a")

    assert second.is_new
    assert second.earlier == (first.manifest.file_name,)


def test_progress_is_of_bytes_and_files(tmp_path: Path) -> None:
    """What is told before, meanwhile and after adds up to what is there."""
    sizes = [_write(tmp_path, f"{n}.parquet", n).stat().st_size for n in range(3)]
    seen = _Seen()

    create_manifest(str(tmp_path), name="a", progress=seen)

    assert seen.total == (3, sum(sizes))
    assert seen.bytes == sum(sizes)
    assert sorted(seen.paths) == ["0.parquet", "1.parquet", "2.parquet"]


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    """Files that were read are not read again, but for those that changed since."""
    for n in range(20):
        _write(tmp_path, f"{n:02}.parquet", n)
    interrupted = _Interrupting(after=5)
    with pytest.raises(KeyboardInterrupt):
        create_manifest(str(tmp_path), name="a", progress=interrupted)
    assert not list(tmp_path.glob("*.json"))
    changed = interrupted.paths[0]
    _write(tmp_path, changed, 100)
    seen = _Seen()

    created = create_manifest(str(tmp_path), name="a", progress=seen)

    assert created.known == 4
    assert sorted(seen.paths + interrupted.paths[1:5]) == [f"{n:02}.parquet" for n in range(20)]
    verify_files(created.manifest, Store(str(tmp_path)), depth="full")
    assert not (tmp_path / _NOTES).exists()


def test_a_folder_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    """A file that was read already and changes before the others are is found out."""
    for n in range(3):
        _write(tmp_path, f"{n}.parquet", n)

    class Changing(_Seen):
        def finished(self, path: str) -> None:
            super().finished(path)
            if len(self.paths) == 1:
                _write(tmp_path, path, 100)

    changing, seen = Changing(), _Seen()
    with pytest.raises(DataError, match="was changed while"):
        create_manifest(str(tmp_path), name="a", progress=changing)
    created = create_manifest(str(tmp_path), name="a", progress=seen)

    assert seen.paths == changing.paths[:1]
    verify_files(created.manifest, Store(str(tmp_path)), depth="full")


def test_notes_of_another_kind_are_no_hindrance(tmp_path: Path) -> None:
    """What a killed or another release left is not understood, and removed in the end."""
    _write(tmp_path, "a.parquet", 0)
    (tmp_path / _NOTES).mkdir()
    (tmp_path / _NOTES / "1.json").write_text('{"notes": [{"format": 0}]}')
    (tmp_path / _NOTES / "2.json").write_text('{"not')

    created = create_manifest(str(tmp_path), name="a")

    assert created.known == 0
    assert not (tmp_path / _NOTES).exists()


def test_a_killed_run_leaves_nothing_that_misleads(tmp_path: Path) -> None:
    """After SIGKILL at any moment the next run makes the manifest, out of true parts alone."""
    for n in range(200):
        _write(tmp_path, f"{n:03}.parquet", n)
    code = (
        "from footplate.data.create import create_manifest\n"
        "print('begins', flush=True)\n"
        f"create_manifest({str(tmp_path)!r}, name='a')"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(0.05)  # somewhere in the middle, wherever that is
    process.send_signal(signal.SIGKILL)
    process.wait(_DEADLINE_S)
    process.stdout.close()

    created = create_manifest(str(tmp_path), name="a")

    verify_files(created.manifest, Store(str(tmp_path)), depth="full")
    assert [path.name for path in tmp_path.glob("*.json")] == [created.manifest.file_name]


def test_files_without_rows_are_taken(tmp_path: Path) -> None:
    """Programs that write in parallel leave empty files; they change nothing of the summary."""
    _write(tmp_path, "a.parquet", 0, count=0)
    _write(tmp_path, "b.parquet", 7, count=1)

    manifest = create_manifest(str(tmp_path), name="a").manifest

    assert [file.rows for file in manifest.files] == [0, 1]
    assert (manifest.fields[0].minimum, manifest.fields[0].maximum) == (7, 7)


def test_unfit_files_are_named(tmp_path: Path) -> None:
    """No folder, no files, no rows, and files that differ are refused by name."""
    with pytest.raises(DataError, match=f"there is no folder {tmp_path}/nowhere"):
        create_manifest(f"{tmp_path}/nowhere", name="a")
    with pytest.raises(DataError, match=f"no Parquet files below {tmp_path}"):
        create_manifest(str(tmp_path), name="a")
    _write(tmp_path, "a.parquet", 0, count=0)
    with pytest.raises(DataError, match=f"the Parquet files below {tmp_path} have no rows"):
        create_manifest(str(tmp_path), name="a")
    _write(tmp_path, "a.parquet", 0)
    other = tmp_path / "b.parquet"
    other.write_bytes(b"PAR1")
    with pytest.raises(DataError, match=f"{other} is no readable Parquet file"):
        create_manifest(str(tmp_path), name="a")
    pq.write_table(_table(0, 3).drop_columns(["word"]), other)
    with pytest.raises(DataError, match=rf"{other} differs from a\.parquet in its columns"):
        create_manifest(str(tmp_path), name="a")
    pq.write_table(pa.table({"number": [1.5], "word": ["a"]}), other)
    with pytest.raises(DataError, match="column 'number': double instead of int64"):
        create_manifest(str(tmp_path), name="a")
    assert not list(tmp_path.glob("*.json"))


def test_a_senseless_name_is_refused(tmp_path: Path) -> None:
    """A name that leaves the folder writes nothing."""
    _write(tmp_path, "a.parquet", 0)

    with pytest.raises(DataError, match="cannot name a data set"):
        create_manifest(str(tmp_path), name="../a")


def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """However large a file is, only blocks of it are in memory."""
    table = pa.table({"zeros": np.zeros(25 << 20)})
    pq.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False)
    code = (
        "import resource\n"
        "from footplate.data.create import create_manifest\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"create_manifest({str(tmp_path)!r}, name='a')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert (tmp_path / "a.parquet").stat().st_size > 200 << 20
    assert int(told.stdout) < 80 << 10  # KiB


@pytest.mark.cluster
def test_a_bucket_is_a_folder(bucket: str, relay: S3Relay) -> None:
    """In a bucket it is the same, with an empty object that S3 gives no range of."""
    store = Store(f"{bucket}/data", endpoint=relay.endpoint)
    for name, first in (("a.parquet", 0), ("more/ü b.parquet", 5)):
        content = io.BytesIO()
        pq.write_table(_table(first, 5), content, row_group_size=3)
        store.put(name, content.getvalue())
    store.put("c.parquet", b"")
    with pytest.raises(DataError, match=r"data/c\.parquet is no readable Parquet file"):
        create_manifest(store.uri, name="a", endpoint=relay.endpoint)
    store.delete("c.parquet")

    created = create_manifest(store.uri, name="a", endpoint=relay.endpoint)

    manifest, found = read_manifest(created.uri, endpoint=relay.endpoint)
    verify_files(manifest, found, depth="full")
    assert manifest.rows == 10
    assert [info.path for info in store.objects("")] == sorted(
        ["a.parquet", created.manifest.file_name, "more/ü b.parquet"]
    )
    assert json.loads(found.get(manifest.file_name))["name"] == "a"
    with pytest.raises(StoreError):
        create_manifest("s3://nothing-of-this-name/data", name="a", endpoint=relay.endpoint)
