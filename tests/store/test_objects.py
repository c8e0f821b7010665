"""The door to object storage, on real folders and a real small disk."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from footplate.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    StoreFullError,
)
from footplate.store import ObjectInfo, Store

ODD_NAMES = ["a b", "ü/日本", "x#y", "q?m&n=1", "p%20q", "100%", "[x]*~", "back\\slash"]

RACER = """
import sys
from pathlib import Path
from footplate.errors import ObjectExistsError
from footplate.store import Store

store, gate, me = Store(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
store.folders("race")
print("ready", flush=True)
while not gate.exists():
    pass
for number in range(100):
    try:
        store.create(f"race/{number}", me.encode())
        print(number)
    except ObjectExistsError:
        pass
"""


def test_what_is_put_is_read_back_whole_and_replaced_whole(store: Store) -> None:
    """An object holds exactly its newest content."""
    store.put("a/b", b"first, and longer")
    store.put("a/b", b"second")
    assert store.get("a/b") == b"second"
    assert store.size("a/b") == 6
    store.put("a/empty", b"")
    assert store.get("a/empty") == b""
    assert store.size("a/empty") == 0


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_kept_as_they_are(store: Store, name: str) -> None:
    """No character of a name is escaped, folded or taken for something else."""
    store.create(f"in/{name}", b"x")
    assert store.get(f"in/{name}") == b"x"
    assert store.reader(f"in/{name}").read() == b"x"
    assert store.objects("in") == [ObjectInfo(path=f"in/{name}", size=1)]
    store.delete(f"in/{name}")
    assert store.size(f"in/{name}") is None


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_store_may_stand_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """The folder is the one that was named, not one with an escaped name."""
    folder = tmp_path / name / "runs"
    store = Store(str(folder))
    store.put("a/b", b"x")
    assert (folder / "a" / "b").read_bytes() == b"x"
    assert store.objects("") == [ObjectInfo(path="a/b", size=1)]
    assert Path(store.locate("a/b")) == folder / "a" / "b"


@pytest.mark.parametrize("path", ["../outside", "a/../../outside", "..", "a//b", "", "a\nb"])
def test_a_path_that_leaves_the_store_or_is_malformed_is_refused(store: Store, path: str) -> None:
    """Every operation refuses such a path with an error of ours."""
    for operation in (store.get, store.delete, store.size, store.reader):
        with pytest.raises(StoreError):
            operation(path)
    for write in (store.put, store.create):
        with pytest.raises(StoreError):
            write(path, b"x")
    assert store.objects("") == []


def test_what_is_not_there_is_said_to_be_not_there(store: Store) -> None:
    """Reading raises the error that callers catch; asking answers with nothing."""
    with pytest.raises(ObjectNotFoundError, match="a/b: it is not there"):
        store.get("a/b")
    with pytest.raises(ObjectNotFoundError, match="a/b"):
        store.reader("a/b")
    store.put("folder/object", b"x")
    with pytest.raises(ObjectNotFoundError):
        store.get("folder")
    assert store.size("folder") is None
    assert store.objects("nowhere") == []
    assert store.folders("nowhere") == []


def test_deleting_twice_is_no_error(store: Store) -> None:
    """What a removal cut short left can be removed again."""
    store.put("a/b", b"x")
    store.delete("a/b")
    store.delete("a/b")
    assert store.objects("") == []


def test_listings_are_sorted_and_keep_to_their_prefix(store: Store) -> None:
    """A prefix is a folder, not the beginning of a name; order is that of the names."""
    for path in ("a/2", "a/10", "a/b/c/1", "ab/1", "a.b/1"):
        store.put(path, path.encode())
    assert [info.path for info in store.objects("a")] == ["a/10", "a/2", "a/b/c/1"]
    assert [info.size for info in store.objects("a")] == [4, 3, 7]
    assert store.folders("a") == ["b"]
    assert store.folders("") == ["a", "a.b", "ab"]
    assert store.objects("a/") == store.objects("a")


def test_create_refuses_what_is_there_and_leaves_it_alone(store: Store) -> None:
    """The first writer's content stays."""
    store.create("a", b"first")
    with pytest.raises(ObjectExistsError, match="exists already"):
        store.create("a", b"second")
    assert store.get("a") == b"first"


def test_of_racing_threads_exactly_one_creates(store: Store) -> None:
    """Create-if-absent has one winner, whose content is whole."""
    barrier = threading.Barrier(8)
    won: list[tuple[int, int]] = []
    content = {me: bytes([me]) * 100_000 for me in range(8)}

    def race(me: int) -> None:
        barrier.wait()
        for number in range(40):
            try:
                store.create(f"race/{number}", content[me])
                won.append((number, me))
            except ObjectExistsError:
                continue

    threads = [threading.Thread(target=race, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in won) == list(range(40))
    assert all(store.get(f"race/{number}") == content[me] for number, me in won)


def test_of_racing_processes_exactly_one_creates(store: Store, tmp_path: Path) -> None:
    """The same between processes, which share nothing but the folder."""
    gate = tmp_path / "gate"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, store.uri, str(gate), str(me)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(4)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    gate.touch()
    won = Counter[int]()
    for me, racer in enumerate(racers):
        numbers = [int(line) for line in racer.communicate(timeout=60)[0].split()]
        assert racer.returncode == 0
        won.update(numbers)
        assert all(store.get(f"race/{number}") == str(me).encode() for number in numbers)
    assert won == Counter(range(100))


def test_emptying_a_folder_does_not_disturb_who_writes_there(store: Store) -> None:
    """Several ranks write below one folder while others are removed from it."""
    failures: list[StoreError] = []

    def come_and_go(me: int) -> None:
        try:
            for _ in range(300):
                store.put(f"shared/folder/{me}", b"x")
                store.delete(f"shared/folder/{me}")
                store.folders("shared")
                store.objects("shared")
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=come_and_go, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_folder_is_deleted_with_what_killed_writers_left_in_it(store: Store) -> None:
    """Half-written files are in no listing, and would fill the disk unseen."""
    store.put("a/b/c", b"x")
    store.put("a/b/d/e", b"x")
    store.put("a/bc", b"x")
    assert store.folder is not None
    (store.folder / "a" / "b" / "weights#1").write_bytes(b"half")
    assert [info.path for info in store.objects("a/b")] == ["a/b/c", "a/b/d/e"]
    store.delete_folder("a/b")
    assert not (store.folder / "a" / "b").exists()
    assert [info.path for info in store.objects("")] == ["a/bc"]
    store.delete_folder("a/b")


def test_all_that_takes_space_is_found(store: Store) -> None:
    """What no listing shows too, with its size and when it was written."""
    before = time.time() - 5
    store.put("a/b/c", b"xyz")
    store.put("a/d", b"x")
    store.put("ab", b"x")
    assert store.folder is not None
    (store.folder / "a" / "b" / "weights#1").write_bytes(b"half")
    found = sorted(store.stored("a"), key=lambda info: info.path)
    assert [(info.path, info.size) for info in found] == [
        ("a/b/c", 3),
        ("a/b/weights#1", 4),
        ("a/d", 1),
    ]
    assert all(before < info.modified < time.time() + 5 for info in found)
    assert sum(info.size for info in store.stored("")) == 9
    assert list(store.stored("none")) == []
    listed = store.objects("a")[-1]
    assert listed.modified == pytest.approx(found[2].modified, abs=1.0)


def test_a_reader_fetches_the_ranges_it_is_asked_for(store: Store) -> None:
    """It behaves as Python's own files do."""
    content = bytes(range(256)) * 8192  # more than any buffer
    store.put("a", content)
    with store.reader("a") as reader:
        assert reader.readable()
        assert reader.seekable()
        assert not reader.writable()
        assert reader.seek(1_000_001) == 1_000_001
        assert reader.read(300) == content[1_000_001:1_000_301]
        assert reader.tell() == 1_000_301
        assert reader.seek(-10, io.SEEK_END) == len(content) - 10
        assert reader.read(100) == content[-10:]
        assert reader.read(100) == b""
        assert reader.seek(5) == 5
        assert reader.seek(5, io.SEEK_CUR) == 10
        assert reader.read() == content[10:]
    with pytest.raises(ValueError, match="closed"):
        reader.read(1)


def test_arrow_reads_parquet_through_a_reader(store: Store) -> None:
    """A row group is read from the middle of a stored file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table({"x": list(range(1000))}), sink, row_group_size=100)
    store.put("data/part.parquet", sink.getvalue())
    with pq.ParquetFile(pa.PythonFile(store.reader("data/part.parquet"), mode="r")) as file:
        assert file.read_row_group(7)["x"].to_pylist() == list(range(700, 800))


def test_a_full_disk_is_told_apart_and_keeps_what_was_there(small_disk: Path) -> None:
    """No partial object appears, and there is room again for what fits."""
    store = Store(str(small_disk / "store"))
    store.put("kept", b"x")
    for write in (store.put, store.create):
        with pytest.raises(StoreFullError, match=r"big: no space left") as caught:
            write("a/big", b"x" * 2**20)
        assert "Free space" in caught.value.hint
        assert store.objects("") == [ObjectInfo(path="kept", size=1)]
    with pytest.raises(StoreFullError):
        store.put("kept", b"y" * 2**20)
    assert store.get("kept") == b"x"
    store.put("a/small", b"x" * 2**16)


def test_a_read_only_place_is_a_store_error(small_disk: Path) -> None:
    """Reading goes on; every write says where it failed."""
    store = Store(str(small_disk / "store"))
    store.put("a", b"x")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert store.get("a") == b"x"
    for write in (store.put, store.create):
        with pytest.raises(StoreError, match=r"store/b: .*Read-only") as caught:
            write("b", b"x")
        assert type(caught.value) is StoreError
    with pytest.raises(StoreError, match=r"delete .*store/a"):
        store.delete("a")
    with pytest.raises(StoreError, match="store/a"):
        store.delete_folder("")
    with pytest.raises(StoreError, match=r"open .*elsewhere"):
        Store(str(small_disk / "elsewhere"))
    assert store.get("a") == b"x"


def test_a_place_that_can_be_no_store_is_refused(tmp_path: Path) -> None:
    """A file is no folder, and an unknown scheme no bucket."""
    (tmp_path / "file").touch()
    for uri in (str(tmp_path / "file"), str(tmp_path / "file" / "below"), "ftp://host/runs"):
        with pytest.raises(StoreError, match="cannot open"):
            Store(uri)


def test_a_store_is_opened_without_making_its_folder(tmp_path: Path) -> None:
    """Who only looks leaves nothing behind, after a pickle either."""
    folder = tmp_path / "none"
    with pytest.raises(ObjectNotFoundError, match="none"):
        Store(str(folder), create=False)
    assert not folder.exists()
    folder.mkdir()
    pickled = pickle.dumps(Store(str(folder), create=False))
    folder.rmdir()
    with pytest.raises(ObjectNotFoundError):
        pickle.loads(pickled)  # noqa: S301  # our own
    assert not folder.exists()


def test_a_store_survives_a_pickle(store: Store) -> None:
    """A rank opens the same place as the driver."""
    store.put("a", b"x")
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301  # our own
    assert copy.get("a") == b"x"
    assert (copy.uri, copy.folder) == (store.uri, store.folder)
    bucket = Store("s3://bucket/runs/", endpoint="http://127.0.0.1:9", region="eu-central-1")
    copy = pickle.loads(pickle.dumps(bucket))  # noqa: S301  # our own
    assert (copy.uri, copy.endpoint) == ("s3://bucket/runs", "http://127.0.0.1:9")
    assert copy.region == "eu-central-1"
    assert copy.folder is None
    assert copy.locate("a") == "s3://bucket/runs/a"


def test_creating_the_same_again_counts_as_done(store: Store) -> None:
    """A write whose answer was lost is tried again, and finds its own work there."""
    store.create("claim", b"mine")
    store.create("claim", b"mine")
    with pytest.raises(ObjectExistsError):
        store.create("claim", b"another's")
    assert store.get("claim") == b"mine"
