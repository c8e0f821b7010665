"""Digests of a file and of ranges inside it, in one pass that holds a few MiB."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from footplate.errors import DataError, MissingExtraError, ObjectNotFoundError
from footplate.store import Store

try:
    import xxhash
except ImportError as error:
    raise MissingExtraError("train", ("xxhash",)) from error

__all__ = ["FileDigests", "digest_file"]

_BLOCK_BYTES = 8 << 20

Range = tuple[int, int]


class FileDigests(NamedTuple):
    """The sha256 of a file and the XXH3 (64 bits) of each range, all hexadecimal."""

    sha256: str
    ranges: tuple[str, ...]


def digest_file(
    store: Store,
    path: str,
    size: int,
    ranges: Sequence[Range],
    *,
    on_bytes: Callable[[int], None] | None = None,
    block_bytes: int = _BLOCK_BYTES,
) -> FileDigests:
    """
    Read a file once, from its first byte to its last.

    Args:
        size: Of the file.
        ranges: First byte and one past the last; in any order, and they may overlap.
        on_bytes: Called after each block with its size.
        block_bytes: Of the file that are in memory.

    Raises:
        DataError: If the file ends before ``size``, or is not there.
    """
    whole = hashlib.sha256()
    parts = _RangeDigests(ranges)
    for start, block in _blocks(store, path, size, block_bytes):
        whole.update(block)
        parts.update(start, block)
        if on_bytes is not None:
            on_bytes(len(block))
    return FileDigests(whole.hexdigest(), parts.digests())


def _blocks(
    store: Store, path: str, size: int, block_bytes: int
) -> Iterator[tuple[int, memoryview]]:
    for start in range(0, size, block_bytes):
        stop = min(start + block_bytes, size)
        try:
            block = store.read(path, start, stop)
        except ObjectNotFoundError as error:
            raise DataError(f"{store.locate(path)} was removed while it was read") from error
        if len(block) != stop - start:
            raise DataError(f"{store.locate(path)} became shorter while it was read")
        yield start, block


class _RangeDigests:
    """Hashes ranges of a stream of consecutive blocks; only those under way are kept open."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = ranges
        self._digests = [xxhash.xxh3_64_hexdigest(b"")] * len(ranges)
        self._waiting = sorted(range(len(ranges)), key=lambda index: ranges[index], reverse=True)
        self._open: dict[int, xxhash.xxh3_64] = {}

    def update(self, position: int, block: memoryview) -> None:
        """Take the block that begins at ``position`` of the stream."""
        end = position + len(block)
        while self._waiting and self._ranges[self._waiting[-1]][0] < end:
            self._open[self._waiting.pop()] = xxhash.xxh3_64()
        for index, digest in list(self._open.items()):
            start, stop = self._ranges[index]
            digest.update(block[max(start - position, 0) : max(stop - position, 0)])
            if stop <= end:
                self._digests[index] = self._open.pop(index).hexdigest()

    def digests(self) -> tuple[str, ...]:
        """One for each range, in their order."""
        return tuple(self._digests)
