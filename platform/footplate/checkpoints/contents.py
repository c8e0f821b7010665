"""
What a checkpoint holds, checked before it is believed.

A checkpoint may come from anywhere, damaged or made to do harm. Nothing of it is executed; every
number in it is compared with the sizes of the files and with the others before anything is
allocated for it, so that it costs no more memory than its files have bytes.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import add, le
from typing import Any, NamedTuple

from footplate.checkpoints.index import (
    FORMAT,
    STATE_FILE,
    Piece,
    RankIndex,
    data_file,
    index_file,
    own_prefix,
    parse_index,
    parse_shared,
)
from footplate.checkpoints.manifest import CheckpointFile, CheckpointManifest
from footplate.errors import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointGoneError,
    ObjectNotFoundError,
)
from footplate.store import Store

__all__ = [
    "JSON_BYTES",
    "Contents",
    "StoredTensor",
    "check_files",
    "check_whole",
    "checksum",
    "read_contents",
    "read_small",
    "read_verified",
    "tensor_nodes",
]

JSON_BYTES = 128 << 20
"""
The most that a file of JSON has: 500,000 pieces a rank. A larger one is neither written nor read.
"""

_MAX_DIMENSIONS = 64
_LARGEST = 2**63
_ITEM_SIZES = (1, 2, 4, 8, 16)
_ALIGNMENT = 64
_READERS = 16


class StoredTensor(NamedTuple):
    """
    A tensor of a checkpoint.

    Attributes:
        dtype: Name of its type, as torch has it.
        pieces: What it is put together of, each with the rank that wrote it.
    """

    dtype: str
    shape: tuple[int, ...]
    pieces: list[tuple[int, Piece]]

    @property
    def volume(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """
    All of a checkpoint but the bytes of its tensors.

    Attributes:
        shared: What all ranks share: by name, JSON with the names of its tensors.
        own: What belongs to each rank alone, likewise.
        tensors: By name.
    """

    shared: Mapping[str, Any]
    own: Sequence[Any]
    tensors: Mapping[str, StoredTensor]


def checksum(content: bytes) -> str:
    """XXH3-64, hexadecimal: against damage, at nearly the speed of memory."""
    import xxhash

    return xxhash.xxh3_64_hexdigest(content)


def read_contents(store: Store, folder: str, manifest: CheckpointManifest) -> Contents:
    """
    What a checkpoint says that it holds.

    Raises:
        CheckpointDamagedError: If one of its files is not what was written.
        CheckpointGoneError: If one is missing.
        CheckpointError: If it is of another format, or malformed.
        StoreError: If the store fails.
    """
    check_files(manifest)
    files = {file.name: file for file in manifest.files}
    names = [STATE_FILE, *map(index_file, range(manifest.world_size))]
    with ThreadPoolExecutor(_READERS) as pool:
        state, *rest = pool.map(lambda name: read_verified(store, folder, files[name]), names)
    with _all_staying():
        indexes = [
            _checked(rank, parse_index(content), files.get(data_file(rank)))
            for rank, content in enumerate(rest)
        ]
        return Contents(
            shared=parse_shared(state),
            own=tuple(index.own for index in indexes),
            tensors=_tensors(indexes),
        )


def check_files(manifest: CheckpointManifest) -> None:
    """
    Make sure that a checkpoint consists of the files that one has, and of no others.

    Raises:
        CheckpointError: If it does not.
    """
    if manifest.format != FORMAT:
        raise CheckpointError(
            f"it is of format {manifest.format}, and this version of Footplate reads format "
            f"{FORMAT}",
            "Go on with the version that wrote it, or start over with --fresh.",
        )
    names = {file.name for file in manifest.files}
    # Not of a range of all ranks, of which someone may say that there are any number.
    if not 0 < manifest.world_size < len(names) or len(names) != len(manifest.files):
        raise CheckpointError(f"it has {len(names)} files of {manifest.world_size} ranks")
    ranks = range(manifest.world_size)
    needed = {STATE_FILE, *map(index_file, ranks)}
    if odd := (needed - names) | (names - needed - set(map(data_file, ranks))):
        raise CheckpointError(f"its manifest is malformed: {sorted(odd)[0]!r} is unexpected")


def read_verified(store: Store, folder: str, file: CheckpointFile) -> bytes:
    """
    The content of one of a checkpoint's files of JSON.

    Raises:
        CheckpointGoneError: If it is missing.
        CheckpointDamagedError: If it is not what was written.
        StoreError: If the store fails.
    """
    path = f"{folder}/{file.name}"
    content = read_small(store, path)
    if len(content) != file.size or checksum(content) != file.xxh3:
        raise CheckpointDamagedError(
            f"{store.locate(path)} is damaged: {len(content)} of {file.size} bytes, "
            "checksum differs"
        )
    return content


def read_small(store: Store, path: str) -> bytes:
    """
    The content of a file that is not meant to be large.

    Raises:
        CheckpointGoneError: If it is missing.
        CheckpointError: If it is too large to be what it should be.
        StoreError: If the store fails.
    """
    try:
        if (store.size(path) or 0) > JSON_BYTES:
            raise CheckpointError(f"{store.locate(path)} is too large to be read")
        return store.get(path)
    except ObjectNotFoundError as error:
        raise CheckpointGoneError(f"{store.locate(path)} is missing") from error


def tensor_nodes(tree: Any) -> Iterator[tuple[str, bool]]:
    """
    The names of the tensors in a tree of JSON.

    Returns:
        Each with whether it is a tensor of its own; otherwise it holds the bytes of an array.

    Raises:
        CheckpointError: If a name is none.
    """
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += reversed(node)
        elif isinstance(node, dict) and "at" in node:
            if not isinstance(node["at"], str):
                raise CheckpointError("its state is malformed: the name of a tensor is no text")
            yield node["at"], node.get("$") == "tensor"
        elif isinstance(node, dict):
            waiting += reversed(node.values())


def check_whole(name: str, tensor: StoredTensor) -> None:
    """
    Make sure that the pieces of a tensor are all of it, each number once.

    Raises:
        CheckpointError: If they are not.
    """
    boxes = [piece for _, piece in tensor.pieces if piece.bytes]
    if sum(math.prod(box.sizes) for box in boxes) != tensor.volume or _overlap(boxes):
        raise CheckpointError(f"the pieces of {name} are not the whole of it, each part once")


@contextmanager
def _all_staying() -> Iterator[None]:
    """Don't look for garbage among millions of new objects: that takes as long as to make them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _checked(rank: int, index: RankIndex, data: CheckpointFile | None) -> RankIndex:
    """An index of which every number fits the file that it is about."""
    size = data.size if data else 0
    if index.rank != rank or index.size != size:
        raise CheckpointError(f"{index_file(rank)} is not about these {size} bytes of rank {rank}")
    if not _all_fit(index.pieces, size):
        end = 0
        for piece in index.pieces:
            if not _fits(piece, end, size):
                raise CheckpointError(f"{index_file(rank)} is malformed at {str(piece)[:300]}")
            end = max(end, piece.start + piece.bytes)
    return index


def _all_fit(pieces: Sequence[Piece], size: int) -> bool:
    """Whether each fits, as :func:`_fits` says: column by column, for there may be very many."""
    if not pieces:
        return True
    tensors, dtypes, shapes, offsets, sizes, starts, lengths, digests = zip(*pieces, strict=True)
    if any(set(map(type, column)) != {str} for column in (tensors, dtypes, digests)):
        return False
    dimensions = list(map(len, shapes))
    if max(dimensions) > _MAX_DIMENSIONS:
        return False
    if dimensions != list(map(len, offsets)) or dimensions != list(map(len, sizes)):
        return False
    flat_shapes, flat_offsets, flat_sizes = (
        list(chain.from_iterable(column)) for column in (shapes, offsets, sizes)
    )
    columns = (flat_shapes, flat_offsets, flat_sizes, starts, lengths)
    if not all(map(_are_numbers, columns)):
        return False
    if not all(map(le, map(add, flat_offsets, flat_sizes), flat_shapes)):
        return False
    return _all_in_file(list(map(math.prod, sizes)), starts, lengths, size)


def _are_numbers(column: Sequence[Any]) -> bool:
    if not column:
        return True
    return set(map(type, column)) == {int} and min(column) >= 0 and max(column) < _LARGEST


def _all_in_file(
    volumes: Sequence[int], starts: Sequence[int], lengths: Sequence[int], size: int
) -> bool:
    """Whether pieces of so many numbers lie one after another in a file of some size."""
    ends = list(map(add, starts, lengths))
    if not all(map(le, accumulate(ends, max), starts[1:])) or max(ends) > size:
        return False
    if any(start % _ALIGNMENT for start in starts):
        return False
    allowed = {(volume, volume * each) for volume in set(volumes) for each in _ITEM_SIZES}
    return 0 not in lengths and allowed.issuperset(zip(volumes, lengths, strict=True))


def _fits(piece: Piece, end: int, size: int) -> bool:
    """Whether a piece can be one, and begins in its file where none of those before it is."""
    texts = (piece.tensor, piece.dtype, piece.xxh3)
    dimensions = len(piece.shape)
    if not all(type(text) is str for text in texts) or dimensions > _MAX_DIMENSIONS:
        return False
    if not len(piece.offsets) == len(piece.sizes) == dimensions:
        return False
    numbers = (*piece.shape, *piece.offsets, *piece.sizes, piece.start, piece.bytes)
    if not all(type(number) is int and 0 <= number < _LARGEST for number in numbers):
        return False
    box = zip(piece.offsets, piece.sizes, piece.shape, strict=True)
    if any(offset + length > whole for offset, length, whole in box):
        return False
    volume = math.prod(piece.sizes)
    if not piece.bytes:
        return not volume
    in_file = end <= piece.start <= piece.start + piece.bytes <= size
    aligned = not piece.start % _ALIGNMENT
    return in_file and aligned and piece.bytes in [volume * each for each in _ITEM_SIZES]


def _tensors(indexes: Sequence[RankIndex]) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    foreign = {own_prefix(index.rank) for index in indexes}
    for index in indexes:
        own = own_prefix(index.rank)
        for piece in index.pieces:
            owner = piece.tensor.partition("/")[0]
            if owner != own and owner in foreign:
                raise CheckpointError(f"{index_file(index.rank)} holds {piece.tensor}")
            tensor = tensors.get(piece.tensor)
            if tensor is None:
                tensor = tensors[piece.tensor] = StoredTensor(piece.dtype, piece.shape, [])
            elif (tensor.dtype, tensor.shape) != (piece.dtype, piece.shape):
                raise CheckpointError(f"the pieces of {piece.tensor} are of different tensors")
            tensor.pieces.append((index.rank, piece))
    return tensors


def _overlap(boxes: Sequence[Piece]) -> bool:
    """Whether two boxes have a part in common."""
    if len(boxes) < 2 or not boxes[0].shape:
        return len(boxes) > 1
    # Along the dimension that tells most of them apart, few are side by side.
    dimension = max(
        range(len(boxes[0].shape)), key=lambda each: len({box.offsets[each] for box in boxes})
    )
    beside: list[Piece] = []
    for box in sorted(boxes, key=lambda each: each.offsets[dimension]):
        start = box.offsets[dimension]
        beside = [
            each for each in beside if each.offsets[dimension] + each.sizes[dimension] > start
        ]
        if any(_share(box, each) for each in beside):
            return True
        beside.append(box)
    return False


def _share(one: Piece, other: Piece) -> bool:
    spans = zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    return all(a < b + width and b < a + length for a, length, b, width in spans)
