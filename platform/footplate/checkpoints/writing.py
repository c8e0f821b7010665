"""
Writing what a rank has staged; digests are made on the way, while the bytes are in the cache.

That happens beside training, in a thread that needs the interpreter for little but the index: the
bytes go from memory to the system in few large calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import xxhash

from footplate.checkpoints.contents import JSON_BYTES, checksum
from footplate.checkpoints.index import (
    STATE_FILE,
    Piece,
    RankIndex,
    data_file,
    index_file,
)
from footplate.checkpoints.manifest import CheckpointFile
from footplate.checkpoints.snapshot import Snapshot
from footplate.errors import UserCodeError
from footplate.store import CheckpointName, RunPaths, Store

__all__ = ["write_snapshot"]

# What is hashed and written at a time; also a part of an upload.
_BLOCK_BYTES = 8 << 20


def write_snapshot(
    store: Store, run: RunPaths, name: CheckpointName, snapshot: Snapshot
) -> tuple[CheckpointFile, ...]:
    """
    Write the files of one rank; when this returns they are durable.

    Raises:
        UserCodeError: If what is no tensor is too much to be read again.
        StoreError: If the store fails, or is full; what was begun is then not there.
    """
    if snapshot.shared is not None:
        _check_size(STATE_FILE, snapshot.shared)  # before anything is written
    folder = run.checkpoint(name)
    digests = _Digests(snapshot.pieces)
    files = []
    if snapshot.bytes:
        file = CheckpointFile(name=data_file(snapshot.rank), size=snapshot.bytes, xxh3="")
        blocks = digests.made_of(_blocks(snapshot.segments))
        store.put_blocks(f"{folder}/{file.name}", blocks, snapshot.bytes)
        files.append(file)
    index = RankIndex(
        rank=snapshot.rank, size=snapshot.bytes, own=snapshot.own, pieces=digests.pieces()
    )
    small = {index_file(snapshot.rank): index.to_json()}
    if snapshot.shared is not None:
        small[STATE_FILE] = snapshot.shared
    for file_name, content in small.items():
        _check_size(file_name, content)
        store.put_blocks(f"{folder}/{file_name}", [memoryview(content)], len(content))
        files.append(CheckpointFile(name=file_name, size=len(content), xxh3=checksum(content)))
    store.sync(folder)
    return tuple(files)


def _check_size(file_name: str, content: bytes) -> None:
    """Nothing is written that would not be read."""
    if len(content) > JSON_BYTES:
        raise UserCodeError(
            f"{file_name} would have {len(content)} bytes, and may have {JSON_BYTES}",
            "Usual cause: something tracked whose state_dict() holds long lists of numbers. "
            "Tensors and arrays are stored apart from it.",
        )


def _blocks(segments: Iterable[memoryview]) -> Iterator[memoryview]:
    for segment in segments:
        for start in range(0, len(segment), _BLOCK_BYTES):
            yield segment[start : start + _BLOCK_BYTES]


class _Digests:
    """Makes the digests of pieces from blocks that come one after the other."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._open = deque(pieces)
        self._done: list[Piece] = []
        self._hash = xxhash.xxh3_64()

    def made_of(self, blocks: Iterable[memoryview]) -> Iterator[memoryview]:
        """The same blocks, each after it was looked at."""
        start = 0
        for block in blocks:
            self._update(block, start)
            yield block
            start += len(block)

    def pieces(self) -> tuple[Piece, ...]:
        """All with their digests, when the blocks have come; those left over are empty."""
        while self._open:
            assert self._open[0].bytes == 0
            self._close()
        return tuple(self._done)

    def _update(self, block: memoryview, start: int) -> None:
        end = start + len(block)
        while self._open and self._open[0].start < end:
            piece = self._open[0]
            stop = piece.start + piece.bytes
            self._hash.update(block[max(piece.start, start) - start : min(stop, end) - start])
            if stop > end:
                return
            self._close()

    def _close(self) -> None:
        self._done.append(self._open.popleft()._replace(xxh3=self._hash.hexdigest()))
        self._hash.reset()
