"""
The bytes of a checkpoint's pieces, verified on their way.

A folder is read straight into where the bytes are wanted, block by block, and each block's digest
is made while it is still in the processor's cache: one pass over memory for both. Files are read,
not memory-mapped: a disk that fails then is an error and not the end of the process. A bucket is
asked for many ranges at once, again and again as long as it may recover. No torch here, so that a
client can verify.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from io import FileIO
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from footplate.checkpoints.index import Piece, data_file
from footplate.errors import (
    CheckpointDamagedError,
    CheckpointGoneError,
    ObjectNotFoundError,
    StoreError,
)
from footplate.store import Store
from footplate.store.patience import Pace, Patience, patiently

if TYPE_CHECKING:
    import xxhash

__all__ = ["PieceFiles"]

# Stays in the cache between being read and being hashed.
_BLOCK_BYTES = 256 << 10
# Of a bucket, one request each; so many of a piece are on their way at once.
_PART_BYTES = 16 << 20
_WINDOW_BYTES = 4 * _PART_BYTES
_REMOTE_THREADS = 4
_LOCAL_THREADS = 8

T = TypeVar("T")


class PieceFiles:
    """
    The data files of a checkpoint; for many threads at once. A context manager.

    Args:
        folder: Of the checkpoint.
        patience: With a bucket.
    """

    def __init__(self, store: Store, folder: str, patience: Patience | None = None) -> None:
        self._store = store
        self._folder = folder
        self._patience = patience or Patience()
        self._pace = Pace(self._patience.requests)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._current = _Current()
        self._files: list[FileIO] = []
        # Memory is shared by all threads: few of them use all of its speed.
        few = min(_LOCAL_THREADS, _processors())
        self._threads = _REMOTE_THREADS if self.is_remote else few
        self._window = _WINDOW_BYTES if self.is_remote else _BLOCK_BYTES

    def __enter__(self) -> PieceFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        with self._lock:
            for file in self._files:
                file.close()
            self._files.clear()

    @property
    def is_remote(self) -> bool:
        """Whether they are in a bucket."""
        return self._store.folder is None

    def read(
        self, rank: int, start: int, into: memoryview, digest: xxhash.xxh3_64 | None = None
    ) -> None:
        """
        Fill a buffer with the bytes of a rank's file from ``start`` on.

        Args:
            digest: Is given the bytes too.

        Raises:
            CheckpointDamagedError: If the file ends before.
            CheckpointGoneError: If there is no such file.
            StoreError: If the store fails.
        """
        at = 0
        for block in self._blocks(rank, start, into):
            if digest is not None:
                digest.update(block)
            at += len(block)
        if at != len(into):
            raise CheckpointDamagedError(
                f"{self.locate(rank)} is damaged: it ends at byte {start + at}, "
                f"and was written to byte {start + len(into)} at least"
            )

    def each(self, do: Callable[[T], object], work: Iterable[T]) -> None:
        """
        Do all of the work, some of it at the same time.

        Raises:
            BaseException: The first one raised; what has begun is ended then.
        """
        items = iter(work)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="footplate-restore") as pool:
            running = {pool.submit(do, item) for item in islice(items, 2 * self._threads)}
            try:
                while running:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    running |= {pool.submit(do, item) for item in islice(items, len(done))}
            except BaseException:
                self._stopped.set()
                for future in running:
                    future.cancel()
                raise

    def verify(self, rank: int, piece: Piece) -> None:
        """
        Read a piece, only to compare its digest.

        Raises:
            CheckpointDamagedError: If it is not what was written.
            CheckpointGoneError: If its file is missing.
            StoreError: If the store fails.
        """
        import xxhash

        digest = xxhash.xxh3_64()
        buffer = memoryview(bytearray(min(piece.bytes, self._window)))
        for at in range(0, piece.bytes, self._window):
            self.read(rank, piece.start + at, buffer[: piece.bytes - at], digest)
        self.check(rank, piece, digest.hexdigest())

    def check(self, rank: int, piece: Piece, found: str) -> None:
        """
        Compare the digest of a piece.

        Raises:
            CheckpointDamagedError: If it is another one.
        """
        if found != piece.xxh3:
            raise CheckpointDamagedError(
                f"{self.locate(rank)} is damaged: bytes {piece.start} to "
                f"{piece.start + piece.bytes}, of {piece.tensor}, are not what was written"
            )

    def locate(self, rank: int) -> str:
        """What a rank's file is called in messages."""
        return self._store.locate(f"{self._folder}/{data_file(rank)}")

    def _blocks(self, rank: int, start: int, into: memoryview) -> Iterator[memoryview]:
        """The blocks of the buffer, in order, each as it is filled."""
        if self.is_remote:
            return self._remote_blocks(rank, start, into)
        return self._local_blocks(rank, start, into)

    def _local_blocks(self, rank: int, start: int, into: memoryview) -> Iterator[memoryview]:
        file, at = self._file(rank), 0
        try:
            file.seek(start)
            while at < len(into):
                block = into[at : at + _BLOCK_BYTES]
                count = file.readinto(block)
                if not count:
                    return
                at += count
                yield block[:count]
        except OSError as error:
            raise self._failed(rank, error) from error

    def _file(self, rank: int) -> FileIO:
        """A rank's file, open in this thread until it reads another one."""
        if self._current.rank != rank:
            file = self._opened(rank)
            with self._lock:
                if self._current.file is not None:
                    self._files.remove(self._current.file)
                    self._current.file.close()
                self._files.append(file)
            self._current.rank, self._current.file = rank, file
        assert self._current.file is not None
        return self._current.file

    def _opened(self, rank: int) -> FileIO:
        assert self._store.folder is not None
        path = self._store.folder / self._folder / data_file(rank)
        try:
            file = FileIO(str(path), opener=_open_at_once)
        except FileNotFoundError as error:
            raise CheckpointGoneError(f"{self.locate(rank)} is missing") from error
        except OSError as error:
            raise self._failed(rank, error) from error
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise CheckpointDamagedError(f"{self.locate(rank)} is damaged: it is no file")
        return file

    def _failed(self, rank: int, error: OSError) -> StoreError:
        return StoreError(
            f"cannot read {self.locate(rank)}: {error.strerror}",
            "Check the disk, and what mounts it.",
        )

    def _remote_blocks(self, rank: int, start: int, into: memoryview) -> Iterator[memoryview]:
        for begin in range(0, len(into), self._window):
            end = min(begin + self._window, len(into))
            spans = [
                (start + at, start + min(at + _PART_BYTES, end))
                for at in range(begin, end, _PART_BYTES)
            ]
            at = begin
            for (first, last), part in zip(spans, self._fetched(rank, spans), strict=True):
                into[at : at + len(part)] = part
                yield into[at : at + len(part)]
                at += len(part)
                if len(part) < last - first:
                    return

    def _fetched(self, rank: int, spans: list[tuple[int, int]]) -> list[memoryview]:
        path = f"{self._folder}/{data_file(rank)}"
        try:
            return patiently(
                lambda: self._store.read_ranges(path, spans),
                self._patience,
                self._pace,
                self._stopped,
            )
        except ObjectNotFoundError as error:
            raise CheckpointGoneError(f"{self.locate(rank)} is missing") from error


class _Current(threading.local):
    """
    What each thread has open.

    Work goes from file to file: not one of all ranks, of which there may be more than a process
    may have files.
    """

    rank: int | None = None
    file: FileIO | None = None


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; a pipe in its place would keep one waiting for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _processors() -> int:
    with suppress(AttributeError):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
