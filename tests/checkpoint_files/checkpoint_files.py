"""Checkpoints made by hand in the stored form: of any number of ranks, cut in any way, or wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import xxhash

from footplate.checkpoints import CheckpointFile, CheckpointManifest
from footplate.checkpoints.index import (
    STATE_FILE,
    Piece,
    RankIndex,
    data_file,
    index_file,
    own_prefix,
    shared_json,
)
from footplate.checkpoints.manifest import COMMITTED, MANIFEST
from footplate.checkpoints.tree import split
from footplate.store import Store

__all__ = [
    "Box",
    "Cut",
    "dealt",
    "halves",
    "make_checkpoint",
    "make_files",
    "manifest_of",
    "put_checkpoint",
    "whole",
]

Box = tuple[int, tuple[int, ...], tuple[int, ...]]
"""The rank that writes it, its offsets and its sizes."""
Cut = Callable[[str, torch.Tensor], Sequence[Box]]
"""Says how a tensor is cut into pieces."""


def whole(_: str, tensor: torch.Tensor) -> list[Box]:
    """All of it by rank 0."""
    return [(0, (0,) * tensor.dim(), tuple(tensor.shape))]


def dealt(ranks: int, dimension: int = 0) -> Cut:
    """As even parts of one dimension as there are, one for each rank, as DTensors are cut."""

    def cut(name: str, tensor: torch.Tensor) -> Sequence[Box]:
        if tensor.dim() <= dimension or not tensor.numel():
            return whole(name, tensor)
        parts = torch.arange(tensor.shape[dimension]).chunk(ranks)
        boxes = []
        for rank, part in enumerate(parts):
            offsets, sizes = [0] * tensor.dim(), list(tensor.shape)
            offsets[dimension], sizes[dimension] = int(part[0]), len(part)
            boxes.append((rank, tuple(offsets), tuple(sizes)))
        return boxes

    return cut


def halves(_: str, tensor: torch.Tensor) -> list[Box]:
    """Each dimension in two, the boxes in turn by ranks 0 and 1."""
    spans = [[(0, size // 2), (size // 2, size - size // 2)] for size in tensor.shape]
    boxes = [tuple(zip(*box, strict=True)) or ((), ()) for box in itertools.product(*spans)]
    return [
        (number % 2, offsets, sizes)
        for number, (offsets, sizes) in enumerate(boxes)
        if all(sizes) or tensor.numel() == 0
    ]


def make_files(
    shared: Mapping[str, Any], own: Sequence[Any] = ({},), *, cut: Cut = whole
) -> dict[str, bytes]:
    """The files of a checkpoint of as many ranks as have something of their own."""
    trees: dict[str, Any] = {}
    pieces: list[list[tuple[Piece, bytes]]] = [[] for _ in own]
    for name, state in shared.items():
        trees[name], tensors = split(state, name)
        for key, tensor in tensors.items():
            for rank, offsets, sizes in cut(key, tensor):
                pieces[rank].append(_piece(key, tensor, offsets, sizes))
    files = {STATE_FILE: shared_json(trees)}
    for rank, state in enumerate(own):
        tree, tensors = split(state, own_prefix(rank))
        for key, tensor in tensors.items():
            pieces[rank] += [_piece(key, tensor, *box[1:]) for box in whole(key, tensor)]
        placed, data = _placed(pieces[rank])
        index = RankIndex(rank=rank, size=len(data), own=tree, pieces=placed)
        files[index_file(rank)] = index.to_json()
        if data:
            files[data_file(rank)] = data
    return files


def make_checkpoint(
    store: Store,
    folder: str,
    shared: Mapping[str, Any],
    own: Sequence[Any] = ({},),
    *,
    cut: Cut = whole,
    step: int = 100,
    attempt: int = 1,
) -> CheckpointManifest:
    """Write and commit a checkpoint."""
    files = make_files(shared, own, cut=cut)
    return put_checkpoint(store, folder, files, world_size=len(own), step=step, attempt=attempt)


def manifest_of(
    files: Mapping[str, bytes],
    *,
    world_size: int = 1,
    step: int = 100,
    attempt: int = 1,
    names: Sequence[str] | None = None,
) -> CheckpointManifest:
    """
    The manifest of files.

    Args:
        names: Of files that it says there are; left out: those.
    """
    return CheckpointManifest(
        format=2,
        step=step,
        position=step * 64,
        epoch=step // 100,
        attempt=attempt,
        world_size=world_size,
        written=1000.0 + step,
        metrics={"loss": 1 / step},
        files=tuple(
            _file(name, files.get(name, b"")) for name in (files if names is None else names)
        ),
    )


def put_checkpoint(
    store: Store, folder: str, files: Mapping[str, bytes], **said: Any
) -> CheckpointManifest:
    """Commit files, whatever is in them; the other arguments are those of the manifest."""
    for name, content in files.items():
        store.put(f"{folder}/{name}", content)
    manifest = manifest_of(files, **said)
    content = manifest.to_json()
    store.put(f"{folder}/{MANIFEST}", content)
    store.put(f"{folder}/{COMMITTED}", xxhash.xxh3_64_hexdigest(content).encode())
    return manifest


def _file(name: str, content: bytes) -> CheckpointFile:
    digest = xxhash.xxh3_64_hexdigest(content) if name.endswith(".json") else ""
    return CheckpointFile(name=name, size=len(content), xxh3=digest)


def _piece(
    key: str, tensor: torch.Tensor, offsets: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[Piece, bytes]:
    part = tensor.detach()
    for dimension, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        part = part.narrow(dimension, offset, size)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    part = part.resolve_conj().resolve_neg()
    # Some types can't be copied as what they are.
    flat = part.view(integers.get(part.itemsize, part.dtype)).contiguous().reshape(-1)
    content = flat.view(torch.uint8).numpy().tobytes()
    dtype = str(tensor.dtype).removeprefix("torch.")
    digest = xxhash.xxh3_64_hexdigest(content)
    shape = tuple(tensor.shape)
    return Piece(key, dtype, shape, offsets, sizes, 0, len(content), digest), content


def _placed(pieces: Sequence[tuple[Piece, bytes]]) -> tuple[tuple[Piece, ...], bytes]:
    data = bytearray()
    placed = []
    for piece, content in pieces:
        data += bytes(-len(data) % 64)
        placed.append(piece._replace(start=len(data)))
        data += content
    return tuple(placed), bytes(data)
