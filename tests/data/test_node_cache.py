"""Row groups shared by the processes of a node, whatever happens to these and to the disk."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from footplate.data.node_cache import NodeCache
from footplate.store.patience import ReadingStopped

_SIZE = 20_000
_NEVER = threading.Event()


def _table(number: int) -> pa.Table:
    """A table of some 20 kB."""
    values = np.random.default_rng(number).integers(0, 256, _SIZE, dtype=np.uint8)
    return pa.table({"x": values.view(np.int64), "text": [f"{number}"] * (_SIZE // 8)})


def _unexpected() -> pa.Table:
    raise AssertionError("it is in the cache")


def _entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.arrow"))


def _taken(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the cache is."""
    return tmp_path / "node" / "cache"


@pytest.fixture
def cache(folder: Path) -> NodeCache:
    """A cache with room for ten tables."""
    return NodeCache(folder, 10 * 48_000)


def test_what_was_read_once_is_there_for_all(cache: NodeCache, folder: Path) -> None:
    """Another process gets what the first one has read."""
    assert cache.get("a", lambda: _table(1), _NEVER) == _table(1)

    assert cache.get("a", _unexpected, _NEVER) == _table(1)
    assert NodeCache(folder, 1000).get("a", _unexpected, _NEVER) == _table(1)
    assert cache.get("b", lambda: _table(2), _NEVER) == _table(2)


def test_entries_are_not_copied(cache: NodeCache) -> None:
    """Who reads an entry shares its memory with all others on the node."""
    cache.get("a", lambda: _table(1), _NEVER)
    before = pa.total_allocated_bytes()
    table = cache.get("a", _unexpected, _NEVER)

    assert pa.total_allocated_bytes() - before < 5000
    assert table.column("x").chunk(0).to_numpy().base is not None


def test_entries_in_use_keep_no_file_open(cache: NodeCache) -> None:
    """There may be more row groups in memory than a process may open files."""
    cache.get("a", lambda: _table(1), _NEVER)
    before = len(list(Path("/dev/fd").iterdir()))
    tables = [cache.get("a", _unexpected, _NEVER) for _ in range(10)]

    assert len(list(Path("/dev/fd").iterdir())) == before
    assert tables == [_table(1)] * 10


def test_a_failure_to_read_is_the_caller_s(cache: NodeCache) -> None:
    """Nothing is kept of it, and the next one tries again."""

    def fail() -> pa.Table:
        raise ValueError("no such row group")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such row group"):
            cache.get("a", fail, _NEVER)
    assert cache.get("a", lambda: _table(1), _NEVER) == _table(1)


def _flipped(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


_DAMAGES: list[Callable[[Path], object]] = [
    lambda path: _flipped(path, 0),
    lambda path: _flipped(path, _SIZE // 2),
    lambda path: _flipped(path, -20),
    lambda path: _flipped(path, -1),
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(path.read_bytes()[: _SIZE // 2]),
    lambda path: path.write_bytes(path.read_bytes() + b"x"),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(bytes(path.stat().st_size)),
]


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_damaged_entry_is_read_anew(
    cache: NodeCache, folder: Path, damage: Callable[[Path], object]
) -> None:
    """What a disk or a power failure made of an entry is never taken for data."""
    cache.get("a", lambda: _table(1), _NEVER)
    damage(folder / "a.arrow")
    fills = []

    def fill() -> pa.Table:
        fills.append(1)
        return _table(1)

    later = NodeCache(folder, 10 * 48_000)
    for _ in range(2):
        assert later.get("a", fill, _NEVER) == _table(1)
    assert len(fills) == 1
    assert NodeCache(folder, 10 * 48_000).get("a", _unexpected, _NEVER) == _table(1)


def test_the_limit_is_kept_by_leaving_out_what_was_not_used(cache: NodeCache, folder: Path) -> None:
    """The least recently used make room, and what is in use stays readable."""
    cache.get("0", lambda: _table(0), _NEVER)
    kept = cache.get("0", _unexpected, _NEVER)
    for number in range(1, 30):
        cache.get(f"{number}", partial(_table, number), _NEVER)
        cache.get("1", lambda: _table(1), _NEVER)
        assert _taken(folder) <= 10 * 48_000
    names = _entries(folder)

    assert len(names) >= 8
    assert {"1.arrow", "29.arrow"} <= set(names)
    assert "0.arrow" not in names
    assert kept == _table(0)


def test_what_is_larger_than_the_limit_is_not_kept(folder: Path) -> None:
    """It would take the place of everything else."""
    cache = NodeCache(folder, 30_000)
    assert cache.get("a", lambda: _table(1), _NEVER) == _table(1)
    assert _entries(folder) == []


def test_a_full_disk_is_gone_on_without(small_disk: Path) -> None:
    """Whatever does not fit is read, and leaves nothing half-written."""
    cache = NodeCache(small_disk / "cache", 1 << 30)
    for number in range(20):
        expected = _table(number)
        assert cache.get(f"{number}", partial(_table, number), _NEVER) == expected
    names = {path.name for path in (small_disk / "cache").iterdir()}

    assert {name for name in names if not name.endswith(".arrow")} == {"locks", "space"}
    assert 1 <= len(names) - 2 < 20
    assert cache.get("0", _unexpected, _NEVER) == _table(0)


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_cannot_be_used_is_gone_on_without(
    tmp_path: Path, there: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A file in its place, say: that is told once."""
    (tmp_path / "file").touch()
    cache = NodeCache(tmp_path / "file" / ("" if there else "below"), 1 << 20)
    for _ in range(2):
        assert cache.get("a", lambda: _table(1), _NEVER) == _table(1)
    (told,) = caplog.messages
    assert told.startswith(f"not all row groups are kept in {tmp_path / 'file'}")


def test_a_read_only_folder_serves_what_it_has(small_disk: Path) -> None:
    """What is there can be read, and what is not is read from elsewhere."""
    cache = NodeCache(small_disk, 1 << 20)
    cache.get("a", lambda: _table(1), _NEVER)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    assert NodeCache(small_disk, 1 << 20).get("a", _unexpected, _NEVER) == _table(1)
    assert cache.get("b", lambda: _table(2), _NEVER) == _table(2)
    assert _entries(small_disk) == ["a.arrow"]


def test_one_reads_while_the_others_wait(folder: Path) -> None:
    """A row group is fetched once, however many want it at once."""
    fills: list[int] = []
    found: list[pa.Table] = []
    barrier = threading.Barrier(6)

    def fill() -> pa.Table:
        fills.append(1)
        time.sleep(0.1)
        return _table(3)

    def want() -> None:
        cache = NodeCache(folder, 1 << 20)
        barrier.wait()
        found.append(cache.get("a", fill, _NEVER))

    threads = [threading.Thread(target=want) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fills) == 1
    assert found == [_table(3)] * 6


def test_who_waits_can_be_told_to_stop(cache: NodeCache) -> None:
    """A reader that is not wanted any more does not wait for another one's store."""
    stopped, filling, go_on = threading.Event(), threading.Event(), threading.Event()

    def fill() -> pa.Table:
        filling.set()
        go_on.wait()
        return _table(1)

    other = threading.Thread(target=cache.get, args=("a", fill, _NEVER))
    other.start()
    filling.wait()
    threading.Timer(0.1, stopped.set).start()
    with pytest.raises(ReadingStopped):
        cache.get("a", _unexpected, stopped)
    go_on.set()
    other.join()


_RANK = """
import random, sys, threading
import numpy as np
import pyarrow as pa
from footplate.data.node_cache import NodeCache

folder, limit, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
cache, chance, never = NodeCache(folder, limit), random.Random(seed), threading.Event()

def table(number):
    values = np.random.default_rng(number).integers(0, 256, 20_000, dtype=np.uint8)
    return pa.table({"x": values.view(np.int64), "text": [f"{number}"] * 2500})

print("ready", flush=True)
while True:
    number = chance.randrange(40)
    assert cache.get(f"{number}", lambda: table(number), never) == table(number)
"""


def test_killed_processes_do_no_harm(folder: Path) -> None:
    """Wherever a process dies, the others go on, nothing is wrong, and the limit is kept."""
    limit, chance = 10 * 48_000, np.random.default_rng(5)

    def start(seed: int) -> subprocess.Popen[str]:
        rank = subprocess.Popen(
            [sys.executable, "-c", _RANK, str(folder), str(limit), str(seed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
        return rank

    survivor, most = start(0), 0
    for seed in range(1, 6):
        victim = start(seed)
        until = time.monotonic() + chance.uniform(0.01, 0.3)
        while time.monotonic() < until:
            most = max(most, _taken_meanwhile(folder))
        victim.kill()
        _, errors = victim.communicate()
        assert errors == ""
        assert survivor.poll() is None
    survivor.kill()
    _, errors = survivor.communicate()

    assert errors == ""
    assert most <= limit + 4096
    _nothing_is_left_behind(folder, limit)


def _taken_meanwhile(folder: Path) -> int:
    """What is there while others write: a file may be gone, or have another name, at once."""
    taken = 0
    for entry in os.scandir(folder):
        try:
            taken += entry.stat().st_size if entry.is_file() else 0
        except FileNotFoundError:
            continue
    return taken


def _nothing_is_left_behind(folder: Path, limit: int) -> None:
    cache = NodeCache(folder, limit)
    for number in range(40):
        assert cache.get(f"{number}", partial(_table, number), _NEVER) == _table(number)
    assert not list(folder.glob("*.partial"))
    assert len(_entries(folder)) >= 8
