"""
Files of this machine, looked at where the kernel keeps them instead of copied from there.

What is mapped stays so, up to a limit: it is the kernel's memory and not this process's own, but
taking it into the address space again and again would cost as much as a copy. Who reads compares
it with a digest, copies at once what it needs, and asks then whether the file is still the same:
what others write into it is seen at once, and perhaps between the two.

The kernel ends a process that touches a page which it cannot read, so pages are asked for first
in a way that fails like any other request. That leaves the moments in which a file is cut short
while it is read, and pages that were dropped and cannot be read a second time. On the file
systems of a network the latter is no exception; files of these are not mapped, wherever a link
or a mount below the folder leads to them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow

__all__ = ["MappedFiles", "Views"]

Range = tuple[int, int]  # first byte and one past the last

_MAPPED_BYTES = 1 << 30
# The kernel limits how many there may be, to 65,530 mostly.
_MAPPED_FILES = 4096
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_POPULATE_READ, _DONT_NEED = 22, 4
# tmpfs, ext2 to ext4, XFS, Btrfs, F2FS, and layers of these in a container.
_LOCAL_KINDS = frozenset((0x01021994, 0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x794C7630))
_STATUS_BYTES = 256
_FAILED = ctypes.c_void_p(-1).value


class Views:
    """What something is a view of: files, as they were when they were mapped."""

    def __init__(self) -> None:
        self._files: list[tuple[Path, tuple[int, ...]]] = []

    def add(self, file: Path, identity: tuple[int, ...]) -> None:
        """One more."""
        self._files.append((file, identity))

    @property
    def are_unchanged(self) -> bool:
        """Whether all of them are what they were, as far as their sizes and times tell."""
        try:
            return all(_identity(file.stat()) == identity for file, identity in self._files)
        except OSError:
            return False


@dataclass(frozen=True, eq=False, slots=True)
class _Mapped:
    """
    A file.

    Attributes:
        identity: Of the file as it was when it was mapped.
        present: What of it this process has asked for.
    """

    identity: tuple[int, ...]
    content: pyarrow.Buffer
    present: set[Range] = field(default_factory=set)


class MappedFiles:
    """
    Files below a folder; for many threads at once.

    Args:
        folder: On this machine.
        limit_bytes: That are mapped at once.
        limit_files: Likewise.
    """

    def __init__(
        self,
        folder: Path,
        limit_bytes: int = _MAPPED_BYTES,
        limit_files: int = _MAPPED_FILES,
    ) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._limit_files = limit_files
        # File systems, by their numbers, that have turned out not to be of this machine.
        self._elsewhere: set[int] = set()
        # Least recently used first.
        self._files: OrderedDict[str, _Mapped] = OrderedDict()
        # All that is present, least recently used first.
        self._used: OrderedDict[tuple[str, Range], None] = OrderedDict()
        self._used_bytes = 0
        self._lock = threading.Lock()

    def has(self, path: str) -> bool:
        """Whether a file can be mapped, as far as is known without mapping it."""
        try:
            return (self._folder / path).stat().st_dev not in self._elsewhere
        except OSError:
            return False

    def read(self, path: str, ranges: Sequence[Range], views: Views) -> list[memoryview] | None:
        """
        Some ranges of a file.

        Args:
            views: The file is added to these.

        Returns:
            None if they cannot be had in this way, for whatever reason: reading says which.
        """
        try:
            mapped = self._mapped(path)
        except OSError:
            return None
        if mapped is None or any(stop > mapped.content.size for _, stop in ranges):
            return None
        for each in ranges:
            if each not in mapped.present and not _advised(mapped.content, each, _POPULATE_READ):
                return None
        self._note(path, mapped, ranges)
        views.add(self._folder / path, mapped.identity)
        whole = memoryview(mapped.content).cast("B")
        return [whole[start:stop] for start, stop in ranges]

    def _mapped(self, path: str) -> _Mapped | None:
        """A file as it is now: one that was changed or replaced is another."""
        status = (self._folder / path).stat()
        if status.st_dev in self._elsewhere:
            return None
        with self._lock:
            mapped = self._files.get(path)
        if mapped is not None and mapped.identity == _identity(status):
            return mapped
        with (self._folder / path).open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if _kind(file.fileno()) not in _LOCAL_KINDS:
                self._elsewhere.add(status.st_dev)
                return None
            if not status.st_size:
                return None
            mapped = _Mapped(_identity(status), _whole(file.fileno(), status.st_size))
        with self._lock:
            self._forget(path)
            self._files[path] = mapped
            while len(self._files) > self._limit_files:
                self._forget(next(iter(self._files)))
        return mapped

    def _note(self, path: str, mapped: _Mapped, ranges: Sequence[Range]) -> None:
        """Let go of what was not used for longest."""
        with self._lock:
            if self._files.get(path) is not mapped:
                return
            self._files.move_to_end(path)
            for each in ranges:
                if each not in mapped.present:
                    mapped.present.add(each)
                    self._used_bytes += each[1] - each[0]
                self._used[path, each] = None
                self._used.move_to_end((path, each))
            while self._used_bytes > self._limit and len(self._used) > len(ranges):
                (oldest, span), _ = self._used.popitem(last=False)
                self._let_go(oldest, span)

    def _let_go(self, path: str, span: Range) -> None:
        mapped = self._files[path]
        _advised(mapped.content, span, _DONT_NEED)
        mapped.present.discard(span)
        self._used_bytes -= span[1] - span[0]
        if not mapped.present:
            del self._files[path]

    def _forget(self, path: str) -> None:
        mapped = self._files.pop(path, None)
        for span in mapped.present if mapped is not None else ():
            del self._used[path, span]
            self._used_bytes -= span[1] - span[0]


class _Mapping:
    """A file in the address space, for as long as something refers to it."""

    def __init__(self, descriptor: int, size: int) -> None:
        # Python's mmap would keep the file open, and Arrow's has all of it read ahead.
        how = mmap.PROT_READ, mmap.MAP_SHARED, descriptor, ctypes.c_long(0)
        address = _C.mmap(None, ctypes.c_size_t(size), *how)
        if address is None or address == _FAILED:
            raise OSError(ctypes.get_errno(), "the file cannot be mapped")
        self.address: int = address
        self._size = size
        self._unmap = _C.munmap  # the module may be gone when it is needed

    def __del__(self) -> None:
        if hasattr(self, "_unmap"):
            self._unmap(ctypes.c_void_p(self.address), ctypes.c_size_t(self._size))


def _whole(descriptor: int, size: int) -> pyarrow.Buffer:
    mapping = _Mapping(descriptor, size)
    return pyarrow.foreign_buffer(mapping.address, size, base=mapping)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _advised(content: pyarrow.Buffer, span: Range, advice: int) -> bool:
    """Tell the kernel something of a range; false if it refuses."""
    start, stop = span
    if start >= stop:
        return True
    begin = start // _PAGE_BYTES * _PAGE_BYTES
    # Through ctypes other threads go on meanwhile: the kernel may read from a disk.
    address = ctypes.c_void_p(content.address + begin)
    return bool(_C.madvise(address, ctypes.c_size_t(stop - begin), advice) == 0)


def _kind(descriptor: int) -> int:
    """The number of the kind of file system, which the kernel's structure begins with."""
    status = ctypes.create_string_buffer(_STATUS_BYTES)
    if not hasattr(_C, "fstatfs") or _C.fstatfs(descriptor, status) != 0:
        return 0
    return int.from_bytes(status.raw[: ctypes.sizeof(ctypes.c_long)], "little")


_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
