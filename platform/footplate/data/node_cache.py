"""
Row groups that the processes of a node share: a folder with a limit.

An entry is a decoded row group as an uncompressed Arrow file, mapped into memory by whoever reads
it: the ranks of a node hold it once. Behind it stands its digest, which each process compares when
it first opens the entry, by reading it: what a bad disk or a power failure made of it is an error
there, and not a signal at the first touch.

What may happen at any point: a process is killed, another one evicts, the disk is full. So entries
are written under another name and renamed when they are complete; locks are those of open files,
which the kernel lets go of when their owner dies; and whatever goes wrong with the folder means
that a row group is read from where it came from.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import pyarrow
import pyarrow.ipc
import xxhash

from footplate.store.patience import ReadingStopped

__all__ = ["NodeCache"]

log = logging.getLogger(__name__)

_SUFFIX = ".arrow"
_PARTIAL = ".partial"
_END = struct.Struct("<8sQ")  # a magic word, and the digest of all before
_MAGIC = b"fpcache1"
_NUMBER = struct.Struct("<Q")
_BLOCK_BYTES = 1 << 20
_PAGE_BYTES = 4096
_LOCKS = 256
# Evicting makes more room than one entry needs, since it looks at all of them.
_SPARE = 0.05
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.001, 0.05
# Longer than looking at all entries of a very large cache takes; then it is done without.
_SPACE_WAIT_S = 10.0


class NodeCache:
    """
    Decoded row groups in a folder, for all processes of a node, also of several jobs.

    The folder takes up no more than its limit, but for entries that were evicted and are still in
    use: their memory or disk is free when the last process lets go of them.

    Args:
        folder: On this machine; made when it is first written to.
        limit_bytes: The least recently used make room beyond it.
    """

    def __init__(self, folder: str | Path, limit_bytes: int) -> None:
        self._folder = Path(folder)
        self._limit = limit_bytes
        # Which file of each entry this process has compared with its digest.
        self._verified: dict[str, tuple[int, bytes]] = {}
        self._is_told = False

    def get(
        self, key: str, fill: Callable[[], pyarrow.Table], stopped: threading.Event
    ) -> pyarrow.Table:
        """
        An entry.

        Args:
            key: Of what it is; letters, digits and ``-``.
            fill: Reads it from where it came from: in one process of the node, while the others
                wait. What it raises is raised here.
            stopped: Set when nobody waits for it any more.

        Raises:
            ReadingStopped: If ``stopped`` was set while another process filled it.
        """
        found = self._open(key)
        if found is not None:
            return found
        with ExitStack() as held:
            try:
                lock = held.enter_context(self._lock_file(key))
                held.enter_context(_locked(lock, stopped))
            except OSError as error:  # no such folder, or one of a kind without locks
                self._tell(error)
                return fill()
            found = self._open(key)
            if found is None:
                found = fill()
                try:
                    self._write(key, found)
                except OSError as error:
                    self._tell(error)
            return found

    def _tell(self, error: OSError) -> None:
        """Once: nothing is wrong but that reading takes longer."""
        if not self._is_told:
            self._is_told = True
            log.warning("not all row groups are kept in %s: %s", self._folder, error)

    def _entry(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"

    def _lock_file(self, key: str) -> IO[bytes]:
        # A fixed number of them, never removed: removing one would race with who opens it.
        number = xxhash.xxh3_64_intdigest(key.encode()) % _LOCKS
        locks = self._folder / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        return (locks / f"{number:02x}").open("ab")

    def _open(self, key: str) -> pyarrow.Table | None:
        """An entry that is there and whole; one that is damaged is removed."""
        path = self._entry(key)
        try:
            with path.open("rb", buffering=0) as file:
                version = _version(file.fileno())
                if self._verified.get(key) != version and not _is_whole(file.fileno()):
                    path.unlink(missing_ok=True)
                    return None
                with suppress(OSError):  # another user's, or read-only: it is of use all the same
                    os.utime(file.fileno())
                table = _mapped(file.fileno())
        except (OSError, ValueError, pyarrow.ArrowException):
            return None
        self._verified[key] = version
        return table

    def _write(self, key: str, table: pyarrow.Table) -> None:
        content = _encoded(table)
        end = _END.pack(_MAGIC, xxhash.xxh3_64_intdigest(content))
        size = content.size + len(end)
        if _on_disk(size) > self._limit:
            return
        partial = self._reserve(size)
        try:
            with partial:
                partial.write(memoryview(content))
                partial.write(end)
                partial.flush()
                with self._space():
                    Path(partial.name).replace(self._entry(key))
        except BaseException:
            Path(partial.name).unlink(missing_ok=True)
            raise

    @contextmanager
    def _space(self) -> Iterator[IO[bytes]]:
        """The file that says how much is taken; held by one process at a time, and not for long."""
        descriptor = os.open(self._folder / "space", os.O_RDWR | os.O_CREAT, 0o666)
        with (
            os.fdopen(descriptor, "r+b", buffering=0) as file,
            _locked(file, threading.Event(), _SPACE_WAIT_S),
        ):
            yield file

    def _reserve(self, size: int) -> IO[bytes]:
        """A file of that size, complete but for its content and its name."""
        needed = _on_disk(size)
        with self._space() as space:
            taken = _number(space.read(_NUMBER.size))
            if taken is None or taken + needed > self._limit:
                taken = self._evict(self._limit - needed)
            # Said before it is so: whoever dies between the two has made the number too large,
            # and it is counted anew when the limit seems to be reached.
            os.pwrite(space.fileno(), _NUMBER.pack(taken + needed), 0)
            path = self._folder / f"{secrets.token_hex(8)}{_PARTIAL}"
            partial = path.open("xb")
            try:
                fcntl.flock(partial, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.posix_fallocate(partial.fileno(), 0, size)
            except BaseException:
                path.unlink()
                partial.close()
                raise
            return partial

    def _evict(self, room: int) -> int:
        """Remove the least recently used until all that is there fits; return how much it is."""
        entries: list[tuple[float, int, str]] = []
        taken = 0
        for found in os.scandir(self._folder):
            if found.name.endswith(_PARTIAL) and _is_abandoned(found.path):
                Path(found.path).unlink(missing_ok=True)
            elif found.name.endswith((_SUFFIX, _PARTIAL)):
                with suppress(FileNotFoundError):  # a damaged one is removed without a lock
                    status = found.stat()
                    taken += _on_disk(status.st_size)
                    if found.name.endswith(_SUFFIX):
                        entries.append((status.st_mtime, _on_disk(status.st_size), found.path))
        entries.sort(reverse=True)
        goal = room - int(self._limit * _SPARE) if taken > room else room
        while taken > max(goal, 0) and entries:
            _, size, path = entries.pop()
            Path(path).unlink(missing_ok=True)
            taken -= size
        if taken > room:
            raise OSError("what other processes write at the moment takes all the room")
        return taken


def _encoded(table: pyarrow.Table) -> pyarrow.Buffer:
    measured = pyarrow.MockOutputStream()
    _encode(table, measured)
    content = pyarrow.allocate_buffer(measured.size())
    with pyarrow.FixedSizeBufferWriter(content) as sink:
        _encode(table, sink)
    return content


def _encode(table: pyarrow.Table, sink: pyarrow.NativeFile) -> None:
    options = pyarrow.ipc.IpcWriteOptions(compression=None)
    with pyarrow.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def _mapped(descriptor: int) -> pyarrow.Table:
    # Not Python's mmap, which would keep a file open for each row group in memory.
    with pyarrow.memory_map(f"/dev/fd/{descriptor}") as mapped:
        content = mapped.read_buffer().slice(0, mapped.size() - _END.size)
    return pyarrow.ipc.open_file(pyarrow.BufferReader(content)).read_all()


def _version(descriptor: int) -> tuple[int, bytes]:
    """Which file an entry is, and the end of it."""
    status = os.fstat(descriptor)
    end = os.pread(descriptor, _END.size, max(status.st_size - _END.size, 0))
    return status.st_ino, end


def _is_whole(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size - _END.size
    digest, position, block = xxhash.xxh3_64(), 0, memoryview(bytearray(_BLOCK_BYTES))
    while position < size:
        count = os.preadv(descriptor, [block[: size - position]], position)
        if not count:
            return False
        digest.update(block[:count])
        position += count
    return os.pread(descriptor, _END.size, position) == _END.pack(_MAGIC, digest.intdigest())


def _number(content: bytes) -> int | None:
    return _NUMBER.unpack(content)[0] if len(content) == _NUMBER.size else None


def _on_disk(size: int) -> int:
    return -(-size // _PAGE_BYTES) * _PAGE_BYTES


def _is_abandoned(path: str) -> bool:
    """Whether the process that was writing this has died: its lock is free."""
    try:
        with Path(path).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        return False


@contextmanager
def _locked(
    file: IO[bytes], stopped: threading.Event, longest_s: float = math.inf
) -> Iterator[None]:
    """
    Hold the lock of an open file.

    Raises:
        ReadingStopped: If ``stopped`` was set meanwhile.
        TimeoutError: If it took longer than that.
    """
    started, wait_s = time.monotonic(), _FIRST_WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if stopped.wait(wait_s):
                raise ReadingStopped from None
            if time.monotonic() - started > longest_s:
                raise TimeoutError(f"{file.name} is locked for {longest_s:g} s") from None
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
