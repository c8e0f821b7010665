"""
Reading state back, on as many ranks as there are now.

What a rank needs of a tensor and what was written of it are boxes; which parts of which pieces
make up the first is worked out by PyTorch's planner for loading. A piece of which anything is
needed is read and verified as a whole.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import xxhash
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.tensor import DTensor

from footplate.checkpoints.contents import (
    StoredTensor,
    check_whole,
    read_contents,
    tensor_nodes,
)
from footplate.checkpoints.index import Piece, own_prefix
from footplate.checkpoints.manifest import CheckpointManifest
from footplate.checkpoints.overlapping import Aside, local_part
from footplate.checkpoints.reading import PieceFiles
from footplate.checkpoints.tree import join
from footplate.errors import CheckpointError
from footplate.store import Store
from footplate.store.patience import Patience

__all__ = ["CheckpointReader", "Into", "TensorKind"]

Into = Callable[[str, torch.dtype, torch.Size], torch.Tensor | None] | Mapping[str, torch.Tensor]
"""Says into which tensor one of the state is read, by its path in there; None: a new one."""

_DTYPES = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype) and not str(value).startswith(("torch.q",))
}
# Types of numbers that any tensor of such items can be copied as, also one that can't be copied.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# Small pieces that follow each other are read together: of a folder as much as a cache holds, of a
# bucket as much as one request is worth.
_TOGETHER_BYTES = 1 << 20
_TOGETHER_REMOTE_BYTES = 16 << 20


class TensorKind(NamedTuple):
    """What a tensor is, but for its numbers."""

    dtype: torch.dtype
    shape: torch.Size


class _Part(NamedTuple):
    """Where a part of a piece goes."""

    target: torch.Tensor
    offsets: Sequence[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reading:
    """
    A piece, and everything that is needed of it.

    Attributes:
        memory: The bytes of what all of it goes into, if they follow each other there.
    """

    rank: int
    piece: Piece
    parts: list[_Part]
    memory: memoryview | None = None

    @property
    def is_for_gpu(self) -> bool:
        """Whether something of it goes to a GPU."""
        return any(part.target.is_cuda for part in self.parts)


class CheckpointReader:
    """
    What a checkpoint holds.

    Args:
        folder: Of the checkpoint, relative to the store.
        patience: With a bucket.

    Raises:
        CheckpointDamagedError: If a file is not what was written.
        CheckpointGoneError: If one is missing.
        CheckpointError: If it is of another format, or malformed.
        StoreError: If the store fails.
    """

    def __init__(
        self,
        store: Store,
        folder: str,
        manifest: CheckpointManifest,
        *,
        patience: Patience | None = None,
    ) -> None:
        self.manifest = manifest
        self.location = store.locate(folder)
        self._store = store
        self._folder = folder
        self._patience = patience
        self._contents = read_contents(store, folder, manifest)
        self._scratch = _Scratch()

    @property
    def shared(self) -> tuple[str, ...]:
        """The names of what all ranks share."""
        return tuple(self._contents.shared)

    def shapes(self, name: str) -> Mapping[str, TensorKind]:
        """
        The tensors of the state of one object, by their paths in it.

        Raises:
            CheckpointError: If there is no such object, or it is malformed.
        """
        prefix = f"{name}/"
        return {
            key.removeprefix(prefix): _kind(self._stored(key, prefix))
            for key, is_tensor in tensor_nodes(self._tree(name))
            if is_tensor
        }

    def load(
        self,
        name: str,
        into: Into | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Any:
        """
        The state of one object.

        Args:
            into: Tensors of the same shape and type to read into: on any device; of one that is
                distributed only this rank's part is read. All others are new, on the CPU.
            progress: Hears of every so many bytes read; called from several threads.

        Raises:
            CheckpointDamagedError: If a piece is not what was written.
            CheckpointGoneError: If a file is missing.
            CheckpointError: If there is no such object, it is malformed, a tensor to read into is
                another one, or two of them have memory in common for which there are different
                numbers.
            StoreError: If the store fails.
        """
        return self._load(self._tree(name), f"{name}/", into, progress)

    def own(self, rank: int) -> Any | None:
        """
        The state that belongs to one rank alone; None if no such rank wrote the checkpoint.

        Raises:
            CheckpointError: As for :meth:`load`.
            StoreError: Likewise.
        """
        if rank >= len(self._contents.own):
            return None
        return self._load(self._contents.own[rank], f"{own_prefix(rank)}/", None, None)

    def _tree(self, name: str) -> Any:
        if name not in self._contents.shared:
            raise CheckpointError(
                f"checkpoint {self.manifest.name} holds {sorted(self.shared)}, not {name!r}",
                "The code tracks more than it did. Start over with --fresh, or track as before.",
            )
        return self._contents.shared[name]

    def _stored(self, key: str, prefix: str) -> StoredTensor:
        """A tensor that can be believed in."""
        tensor = self._contents.tensors.get(key)
        if tensor is None or not key.startswith(prefix) or tensor.dtype not in _DTYPES:
            raise CheckpointError(f"checkpoint {self.manifest.name} holds no such tensor: {key!r}")
        check_whole(key, tensor)
        itemsize = _DTYPES[tensor.dtype].itemsize
        if any(piece.bytes != math.prod(piece.sizes) * itemsize for _, piece in tensor.pieces):
            raise CheckpointError(f"the sizes of {key} are not those of its type")
        return tensor

    def _load(
        self,
        tree: Any,
        prefix: str,
        into: Into | None,
        progress: Callable[[int], None] | None,
    ) -> Any:
        stored: dict[str, StoredTensor] = {}
        tensors: dict[str, torch.Tensor] = {}
        for key, is_tensor in tensor_nodes(tree):
            if key not in tensors:
                stored[key] = self._stored(key, prefix)
                wanted = into if is_tensor else None
                tensors[key] = _destination(key.removeprefix(prefix), _kind(stored[key]), wanted)
        aside = Aside(tensors)
        self._fill(aside.targets, stored, progress)
        aside.settle()
        return join(tree, tensors)

    def _fill(
        self,
        tensors: Mapping[str, torch.Tensor],
        stored: Mapping[str, StoredTensor],
        progress: Callable[[int], None] | None,
    ) -> None:
        readings = sorted(
            _readings(tensors, stored), key=lambda each: (each.rank, each.piece.start)
        )
        with PieceFiles(self._store, self._folder, self._patience) as files:
            limit = _TOGETHER_REMOTE_BYTES if files.is_remote else _TOGETHER_BYTES

            def serve(group: Sequence[_Reading]) -> None:
                self._serve(files, group)
                if progress is not None:
                    progress(sum(each.piece.bytes for each in group))

            files.each(serve, _groups(readings, limit))

    def _serve(self, files: PieceFiles, group: Sequence[_Reading]) -> None:
        """Read pieces that follow each other in a file, and bring them to where they belong."""
        if len(group) == 1:
            self._serve_one(files, group[0])
        else:
            self._serve_several(files, group)

    def _serve_one(self, files: PieceFiles, reading: _Reading) -> None:
        rank, piece, memory = reading.rank, reading.piece, reading.memory
        if memory is None:
            buffer = self._scratch.take(piece.bytes, pinned=reading.is_for_gpu)
            memory = _bytes(buffer)
        digest = xxhash.xxh3_64()
        files.read(rank, piece.start, memory, digest)
        files.check(rank, piece, digest.hexdigest())
        if reading.memory is None:
            _bring(buffer, reading)

    def _serve_several(self, files: PieceFiles, group: Sequence[_Reading]) -> None:
        first, last, rank = group[0].piece, group[-1].piece, group[0].rank
        buffer = self._scratch.take(
            last.start + last.bytes - first.start, pinned=any(each.is_for_gpu for each in group)
        )
        content = _bytes(buffer)
        files.read(rank, first.start, content)
        for each in group:
            begin = each.piece.start - first.start
            end = begin + each.piece.bytes
            files.check(rank, each.piece, xxhash.xxh3_64_hexdigest(content[begin:end]))
            if each.memory is not None:
                each.memory[:] = content[begin:end]
            else:
                _bring(buffer[begin:end], each)


class _Scratch(threading.local):
    """A buffer of each thread, which grows to the largest that was asked for."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def take(self, size: int, *, pinned: bool) -> torch.Tensor:
        """So many bytes, with those that were taken before given up."""
        if len(self._buffer) < size or (pinned and not self._buffer.is_pinned()):
            self._buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        return self._buffer[:size]


def _kind(tensor: StoredTensor) -> TensorKind:
    return TensorKind(_DTYPES[tensor.dtype], torch.Size(tensor.shape))


def _destination(path: str, kind: TensorKind, into: Into | None) -> torch.Tensor:
    """The tensor that one of the state is read into."""
    if into is None:
        found = None
    elif isinstance(into, Mapping):
        found = into.get(path)
    else:
        found = into(path, *kind)
    if found is None:
        try:
            return torch.empty(kind.shape, dtype=kind.dtype)
        except (RuntimeError, OverflowError) as error:  # of nothing, but of impossible shape
            raise CheckpointError(f"there is no tensor like {path}: {error}") from error
    if (found.dtype, found.shape) != kind or found.is_meta:
        raise CheckpointError(
            f"{path} is {kind.dtype} {list(kind.shape)}, and can't be read into "
            f"{found.dtype} {list(found.shape)} on {found.device}"
        )
    return found.detach()


def _readings(
    tensors: Mapping[str, torch.Tensor], stored: Mapping[str, StoredTensor]
) -> Iterator[_Reading]:
    """What is to be read for tensors, some of them distributed."""
    for key, tensor in tensors.items():
        pieces = [(rank, piece) for rank, piece in stored[key].pieces if piece.bytes]
        if len(pieces) == 1 and not isinstance(tensor, DTensor):
            yield _whole(*pieces[0], tensor)
        else:
            yield from _divided(key, tensor, pieces)


def _divided(
    key: str, tensor: torch.Tensor, pieces: Sequence[tuple[int, Piece]]
) -> Iterator[_Reading]:
    """What is to be read where pieces and what is needed are different boxes."""
    stored = TensorStorageMetadata(
        properties=TensorProperties(dtype=tensor.dtype),
        size=tensor.shape,
        chunks=[
            ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.sizes))
            for _, piece in pieces
        ],
    )
    local = local_part(tensor)
    parts: dict[int, list[_Part]] = {}
    for item in create_read_items_for_chunk_list(key, stored, _needed(tensor)):
        assert item.storage_index.index is not None
        target = _box(local, item.dest_offsets, item.lengths)
        part = _Part(target, item.storage_offsets)
        parts.setdefault(item.storage_index.index, []).append(part)
    for number, of_piece in parts.items():
        rank, piece = pieces[number]
        if len(of_piece) == 1 and of_piece[0].target.shape == piece.sizes:
            yield _whole(rank, piece, of_piece[0].target)
        else:
            yield _Reading(rank=rank, piece=piece, parts=of_piece)


def _needed(tensor: torch.Tensor) -> list[ChunkStorageMetadata]:
    """The boxes of a tensor that are in this process."""
    if not isinstance(tensor, DTensor):
        return [ChunkStorageMetadata(torch.Size([0] * tensor.dim()), tensor.shape)]
    is_member = tensor.device_mesh.get_coordinate() is not None
    return list(tensor.__create_chunk_list__()) if is_member else []


def _box(tensor: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    for dimension, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        if size != tensor.shape[dimension]:
            tensor = tensor.narrow(dimension, offset, size)
    return tensor


def _whole(rank: int, piece: Piece, target: torch.Tensor) -> _Reading:
    part = _Part(target, (0,) * target.dim())
    return _Reading(rank=rank, piece=piece, parts=[part], memory=_memory(target))


def _memory(tensor: torch.Tensor) -> memoryview | None:
    """The bytes of a tensor, if they are in main memory and follow each other as in a file."""
    is_plain = tensor.device.type == "cpu" and tensor.is_contiguous()
    if not is_plain or tensor.is_conj() or tensor.is_neg():
        return None
    return _bytes(tensor.reshape(-1).view(torch.uint8))


def _bytes(tensor: torch.Tensor) -> memoryview:
    array: Any = tensor.numpy()
    return memoryview(array)


def _groups(readings: Sequence[_Reading], limit: int) -> Iterator[list[_Reading]]:
    """Readings that are done together: small pieces that follow each other in a file."""
    group: list[_Reading] = []
    for reading in readings:
        if group:
            first, piece = group[0], reading.piece
            size = piece.start + piece.bytes - first.piece.start
            if reading.rank != first.rank or size > limit:
                yield group
                group = []
        group.append(reading)
    if group:
        yield group


def _bring(content: torch.Tensor, reading: _Reading) -> None:
    """Copy the parts of a piece to where they belong."""
    piece = reading.piece
    dtype = _DTYPES[piece.dtype]
    whole = content.view(_as_integers(dtype)).view(piece.sizes)
    for target, offsets in reading.parts:
        source = _box(whole, offsets, target.shape)
        if target.is_conj() or target.is_neg() or dtype.itemsize not in _INTEGERS:
            target.copy_(source.view(dtype))
        else:
            target.view(_as_integers(dtype)).copy_(source)


def _as_integers(dtype: torch.dtype) -> torch.dtype:
    return _INTEGERS.get(dtype.itemsize, dtype)
