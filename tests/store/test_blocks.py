"""What is written from memory: whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from footplate.errors import StoreError, StoreFullError
from footplate.store import Store
from footplate.store.files import write_file


def _blocks(content: bytes, size: int = 1000) -> list[memoryview]:
    view = memoryview(content)
    return [view[start : start + size] for start in range(0, len(view), size)]


@pytest.mark.parametrize("name", ["a", "new/folders/a", "x y/ü", "x#y", "100%"])
def test_blocks_become_one_object(store: Store, name: str) -> None:
    """Of exactly their content, listed as any other, and replaced whole."""
    content = os.urandom(12_345)
    store.put_blocks(name, _blocks(content), len(content))
    assert store.get(name) == content
    assert [info.path for info in store.objects("")] == [name]
    store.put_blocks(name, [memoryview(b"other")], 5)
    store.sync(name)
    assert store.get(name) == b"other"
    store.put_blocks(name, [], 0)
    assert store.get(name) == b""
    assert store.folder is not None
    assert len([path for path in store.folder.rglob("*") if path.is_file()]) == 1


def test_an_object_is_not_there_before_it_is_whole(store: Store) -> None:
    """Nor is the one before it gone; who lists sees nothing of what is being written."""
    store.put("a", b"before")

    def blocks() -> Iterator[memoryview]:
        yield memoryview(b"half")
        assert store.get("a") == b"before"
        assert [info.path for info in store.objects("")] == ["a"]
        yield memoryview(b"whole")

    store.put_blocks("a", blocks(), 9)
    assert store.get("a") == b"halfwhole"


def test_what_could_not_be_written_leaves_nothing(store: Store) -> None:
    """Whatever ends it, the object before it stays."""
    store.put("a", b"before")

    def blocks() -> Iterator[memoryview]:
        yield memoryview(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put_blocks("a", blocks(), 8)
    assert store.get("a") == b"before"
    assert store.folder is not None
    assert [path.name for path in store.folder.iterdir()] == ["a"]


def test_a_full_disk_leaves_nothing_of_what_did_not_fit(small_disk: Path) -> None:
    """What was there before stays, and what fits is still taken."""
    store = Store(str(small_disk / "store"))
    store.put_blocks("a", [memoryview(bytes(100_000))], 100_000)
    with pytest.raises(StoreFullError, match=r"cannot write .*/b: no space left") as caught:
        store.put_blocks("b", _blocks(bytes(300_000), 65_536), 300_000)
    assert "Free space" in caught.value.hint
    assert [path.name for path in (small_disk / "store").iterdir()] == ["a"]
    store.put_blocks("b", [memoryview(bytes(100_000))], 100_000)
    assert store.size("b") == 100_000


def test_a_place_that_is_taken_is_a_store_error(store: Store) -> None:
    """A file stands where a folder should."""
    store.put("a", b"")
    with pytest.raises(StoreError, match="cannot write"):
        store.put_blocks("a/b", [memoryview(b"x")], 1)
    with pytest.raises(StoreError, match="cannot write"):
        store.sync("missing")


_KILLED = """
import os, sys
from pathlib import Path
from footplate.store.files import write_file

def blocks():
    yield memoryview(b"half")
    os.kill(os.getpid(), 9)

write_file(Path(sys.argv[1]), blocks())
"""


def test_what_a_killed_writer_left_is_no_object(store: Store) -> None:
    """It takes space until its folder is removed, and is not taken for anything."""
    assert store.folder is not None
    command = [sys.executable, "-c", _KILLED, str(store.folder / "in" / "a")]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert store.objects("") == []
    assert store.size("in/a") is None
    assert [info.size for info in store.stored("")] == [4]
    store.delete_folder("in")
    assert list(store.folder.iterdir()) == []


def test_a_large_block_is_written_whole(tmp_path: Path) -> None:
    """The system may take less of a block at a time than it is given."""
    content = os.urandom(1 << 20) * 40
    write_file(tmp_path / "a", [memoryview(content)])
    assert (tmp_path / "a").read_bytes() == content
