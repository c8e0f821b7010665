"""Files looked at where the kernel keeps them: their bytes, a limit, and files that change."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from footplate.data.mapped_files import MappedFiles, Views

_SIZE = 8 << 20


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """Of three files."""
    content = np.random.default_rng(0).bytes(_SIZE)
    for name in "abc":
        (tmp_path / name).write_bytes(content)
    return content


def _mapped_bytes(folder: Path) -> int:
    """Of the files of a folder, as the kernel counts what of them is in the address space."""
    taken, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if "-" in line.split()[0]:
            is_ours = str(folder) in line
        elif is_ours and line.startswith("Rss:"):
            taken += int(line.split()[1]) << 10
    return taken


def test_ranges_are_the_file_s_bytes(tmp_path: Path, content: bytes) -> None:
    """Any ranges, also those that overlap, are empty, or touch the end."""
    files = MappedFiles(tmp_path)
    ranges = [(0, 10), (5, 5000), (7, 7), (4095, 4097), (_SIZE - 1, _SIZE), (0, _SIZE)]
    for _ in range(2):
        found = files.read("a", ranges, Views())
        assert found is not None
        assert [bytes(part) for part in found] == [content[start:stop] for start, stop in ranges]


def test_what_cannot_be_mapped_is_left_to_reading(tmp_path: Path, content: bytes) -> None:
    """A file that is missing, empty, a folder or too short is none."""
    (tmp_path / "empty").touch()
    files = MappedFiles(tmp_path)
    for name in ("missing", "empty", "."):
        assert files.read(name, [(0, 10)], Views()) is None
    assert files.read("a", [(0, _SIZE + 1)], Views()) is None
    assert MappedFiles(Path("/proc/self")).read("status", [(0, 1)], Views()) is None


def test_a_file_that_was_changed_is_another(tmp_path: Path, content: bytes) -> None:
    """Who reads again sees the file as it is now; who still has the old one, the old one."""
    files = MappedFiles(tmp_path)
    before = files.read("a", [(0, 8)], Views())
    (tmp_path / "new").write_bytes(b"another one")
    (tmp_path / "new").replace(tmp_path / "a")
    after = files.read("a", [(0, 8)], Views())
    assert before is not None
    assert after is not None
    assert (bytes(before[0]), bytes(after[0])) == (content[:8], b"another ")
    os.truncate(tmp_path / "a", 4)
    assert files.read("a", [(0, 8)], Views()) is None


def test_no_more_is_mapped_than_the_limit(tmp_path: Path, content: bytes) -> None:
    """However much is read, and however long what was read is held."""
    files = MappedFiles(tmp_path, limit_bytes=_SIZE // 2)
    step = _SIZE // 8
    held = []
    for name in "abcabc":
        for start in range(0, _SIZE, step):
            found = files.read(name, [(start, start + step)], Views())
            assert found is not None
            assert bytes(found[0]) == content[start : start + step]
            held.append(found[0])
            # The kernel may map all of the 2 MiB that a touched page is a part of.
            assert _mapped_bytes(tmp_path) <= _SIZE // 2 + step + 3 * (2 << 20)
    assert all(bytes(part[:4]) in content for part in held)


def test_no_file_stays_open(tmp_path: Path, content: bytes) -> None:
    """There may be more of them than a process may open."""
    before = len(list(Path("/dev/fd").iterdir()))
    files = MappedFiles(tmp_path)
    for name in "abc":
        files.read(name, [(0, 10)], Views())
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_where_a_file_is_decides(tmp_path: Path, content: bytes) -> None:
    """Neither the folder that a link is in, nor that a link to a file elsewhere is in."""
    with (tmp_path / "a").open("rb") as file:
        through = MappedFiles(Path("/proc/self/fd"))
        found = through.read(str(file.fileno()), [(0, 10)], Views())
    assert found is not None
    assert bytes(found[0]) == content[:10]
    (tmp_path / "elsewhere").symlink_to("/proc/self/status")
    files = MappedFiles(tmp_path)
    assert files.has("elsewhere")
    assert files.read("elsewhere", [], Views()) is None
    assert not files.has("elsewhere")
    assert files.has("a")
    assert not files.has("missing")


def test_views_tell_what_has_changed(tmp_path: Path, content: bytes) -> None:
    """Each file of which there are any; also one that is gone."""
    files, views = MappedFiles(tmp_path), Views()
    assert views.are_unchanged
    for name in "ab":
        files.read(name, [(0, 10)], views)
    assert views.are_unchanged
    (tmp_path / "c").write_bytes(b"another")
    assert views.are_unchanged
    with (tmp_path / "a").open("r+b") as file:
        file.write(b"another")
    assert not views.are_unchanged
    views = Views()
    files.read("b", [(0, 10)], views)
    (tmp_path / "b").unlink()
    assert not views.are_unchanged


def test_no_more_files_are_mapped_than_the_limit(tmp_path: Path, content: bytes) -> None:
    """The kernel has one, too; what is looked at stays whatever was let go of."""
    files, held = MappedFiles(tmp_path, limit_files=5), []
    for number in range(20):
        (tmp_path / str(number)).write_bytes(f"content of {number}".encode())
        for name in ("a", str(number)):
            held.append(files.read(name, [(0, 11)], Views()))
        del held[:-2]
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8").count(f"{tmp_path}/")
        assert mapped <= 5 + 2
    assert held[1] is not None
    assert bytes(held[1][0]) == b"content of "


def test_the_start_is_not_read_for_nothing(tmp_path: Path) -> None:
    """Of a large file what is asked for is read, and what the kernel has around it."""
    with (tmp_path / "large").open("wb") as file:
        file.write(bytes(96 << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = _is_in_memory(tmp_path / "large")
    MappedFiles(tmp_path).read("large", [(64 << 20, (64 << 20) + 10)], Views())
    after = _is_in_memory(tmp_path / "large")
    assert after[len(after) * 2 // 3]
    # In memory alone it was from the start, where files have no other place.
    assert after[0] == before[0]


def _is_in_memory(file: Path) -> list[bool]:
    """Of each page of a file."""
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as content:
        present = (ctypes.c_ubyte * (len(content) // mmap.PAGESIZE))()
        first = ctypes.c_ubyte.from_buffer(content)
        size = ctypes.c_size_t(len(content))
        assert ctypes.CDLL(None).mincore(ctypes.byref(first), size, present) == 0
        del first
        return [bool(each & 1) for each in present]


def test_a_kernel_that_cannot_be_asked_is_not_relied_on(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one refuses to read pages ahead of the first touch: nothing is touched then."""
    monkeypatch.setattr("footplate.data.mapped_files._POPULATE_READ", 9999)
    views = Views()
    assert MappedFiles(tmp_path).read("a", [(0, 10)], views) is None
    assert views.are_unchanged


def test_many_threads_read_at_once(tmp_path: Path, content: bytes) -> None:
    """While others let go of what they read."""
    files = MappedFiles(tmp_path, limit_bytes=_SIZE // 4)
    wrong: list[tuple[str, int]] = []

    def read(seed: int) -> None:
        chance = np.random.default_rng(seed)
        for _ in range(200):
            name, start = "abc"[chance.integers(3)], int(chance.integers(_SIZE - 9000))
            found = files.read(name, [(start, start + 9000)], Views())
            if found is None or bytes(found[0]) != content[start : start + 9000]:
                wrong.append((name, start))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
