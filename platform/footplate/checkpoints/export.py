"""
A checkpoint's tensors as a plain safetensors file, for whoever knows nothing of Footplate.

The file is made at its full size and mapped into memory; pieces are read right into their places,
so that no more memory is needed than pieces are read at once.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from footplate.checkpoints.restore import CheckpointReader, TensorKind
from footplate.errors import CheckpointError

__all__ = ["export_safetensors"]

_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
}
_ALIGNMENT = 64
_BLOCK_BYTES = 1 << 20


def export_safetensors(
    reader: CheckpointReader,
    name: str,
    out: Path,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """
    Write the tensors in the state of one object to a file, by their paths in it.

    The file appears when it is complete. Of a model's state that is its ``state_dict``; what is no
    tensor is left out.

    Args:
        progress: Hears how many bytes of how many are done; called from several threads.

    Raises:
        CheckpointError: If there is no such object or it is damaged, its tensors are of a type
            that such files don't have, or the file can't be written.
        StoreError: If the store fails.
    """
    kinds = reader.shapes(name)
    header, places, size = _layout(kinds, {"checkpoint": reader.location, "object": name})
    partial = out.with_name(f"{out.name}.partial")
    try:
        _allocate(partial, header, size)
        mapped = torch.from_file(str(partial), shared=True, size=size, dtype=torch.uint8)
        into = {path: _view(mapped, places[path], kind) for path, kind in kinds.items()}
        reader.load(name, into, progress=progress and _Counter(progress, size - len(header)).add)
        _finish(partial, out)
    except OSError as error:
        raise CheckpointError(f"cannot write {out}: {error.strerror}") from error
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


class _Counter:
    """Adds up bytes."""

    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._total)


def _layout(
    kinds: Mapping[str, TensorKind], origin: Mapping[str, str]
) -> tuple[bytes, dict[str, int], int]:
    """The head of the file, where in the file each tensor begins, and the size of it all."""
    if odd := sorted({str(kind.dtype) for kind in kinds.values() if kind.dtype not in _NAMES}):
        raise CheckpointError(f"safetensors files have no tensors of {', '.join(odd)}")
    entries: dict[str, Any] = {"__metadata__": {"format": "pt", **origin}}
    places: dict[str, int] = {}
    end = 0
    # There may be no gaps: those with the largest items come first, so that all are aligned.
    for path, kind in sorted(kinds.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        places[path], end = end, end + math.prod(kind.shape) * kind.dtype.itemsize
        entries[path] = {
            "dtype": _NAMES[kind.dtype],
            "shape": list(kind.shape),
            "data_offsets": [places[path], end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    head = struct.pack("<Q", len(text)) + text
    return head, {path: len(head) + start for path, start in places.items()}, len(head) + end


def _allocate(file: Path, header: bytes, size: int) -> None:
    """Make a file of full size: a disk without room is found out now, not by a dying process."""
    with file.open("wb") as opened:
        opened.write(header)
        opened.flush()
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(opened.fileno(), 0, size)
        else:  # not on every system
            for start in range(len(header), size, _BLOCK_BYTES):
                opened.write(bytes(min(_BLOCK_BYTES, size - start)))


def _view(mapped: torch.Tensor, start: int, kind: TensorKind) -> torch.Tensor:
    size = math.prod(kind.shape) * kind.dtype.itemsize
    return mapped[start : start + size].view(kind.dtype).view(kind.shape)


def _finish(partial: Path, out: Path) -> None:
    with partial.open("rb") as opened:
        os.fsync(opened.fileno())
    partial.replace(out)
