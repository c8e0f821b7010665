"""
The source text of Python's own standard library: windows of bytes, or whole documents.

Text that every machine with Python has, and enough of it for a small language model. A file is
held out or not for what is in it, so that even two files of the same content are in one part.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from footplate.data import Preparation

# What others installed, and what the library itself is tested with.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
_HELD_OUT_SHARE = 0.1
# Stands after every file.
_SEPARATOR = b"\0"
# Text that one item of the source names.
_BATCH_BYTES = 1 << 20

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class File(TypedDict):
    """A file of the library: its name in it, its content's digest, how much of it is taken."""

    name: str
    sha256: str
    bytes: int


def train(*, length: int = 256, max_bytes: int | None = None) -> Preparation:
    """
    Windows of bytes to train on: about nine files of ten.

    Args:
        length: Predictions in a sample; it has one byte more, of which the first is only given.
        max_bytes: Take no more than so many bytes of text.
    """
    return _windows("train", length, max_bytes)


def valid(*, length: int = 256, max_bytes: int | None = None) -> Preparation:
    """The part that is held out, in the form of :func:`train`."""
    return _windows("valid", length, max_bytes)


def train_documents(*, max_bytes: int | None = None) -> Preparation:
    """The same files as they are, a sample each: what packing and bucketing are for."""
    return _documents("train", max_bytes)


def valid_documents(*, max_bytes: int | None = None) -> Preparation:
    """The part that is held out, in the form of :func:`train_documents`."""
    return _documents("valid", max_bytes)


def _windows(part: str, length: int, max_bytes: int | None) -> Preparation:
    if length < 1:
        raise ValueError(f"length is {length}; a sample needs at least one byte to predict")
    return Preparation(
        name=f"stdlib-text-{part}",
        source=_batches(part, max_bytes),
        transform=partial(windows, width=length + 1),
    )


def _documents(part: str, max_bytes: int | None) -> Preparation:
    return Preparation(
        name=f"stdlib-documents-{part}",
        source=_batches(part, max_bytes),
        transform=documents,
        rows_per_group=256,
    )


def windows(files: list[File], *, width: int) -> dict[str, Bytes]:
    """The files one after the other, cut into windows; less than one window is left over."""
    text = np.frombuffer(b"".join(map(_text, files)), np.uint8)
    return {"text": text[: len(text) // width * width].reshape(-1, width)}


def documents(files: list[File]) -> dict[str, list[Bytes]]:
    """Each file by itself."""
    return {"text": [np.frombuffer(_text(file), np.uint8) for file in files]}


def _text(file: File) -> bytes:
    content = (_library() / file["name"]).read_bytes()
    if hashlib.sha256(content).hexdigest() != file["sha256"]:
        raise ValueError(f"{file['name']} is not what it was when the build began")
    return (content + _SEPARATOR)[: file["bytes"]]


def _batches(part: str, max_bytes: int | None) -> Iterator[list[File]]:
    """The files of a part, about a megabyte of text at a time."""
    batch: list[File] = []
    for file in _limited(_files(part), max_bytes):
        batch.append(file)
        if sum(taken["bytes"] for taken in batch) >= _BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _limited(files: Iterator[File], max_bytes: int | None) -> Iterator[File]:
    left = max_bytes
    for file in files:
        if left is None:
            yield file
            continue
        taken = min(file["bytes"], left)
        if taken:
            yield {**file, "bytes": taken}
        left -= taken


def _files(part: str) -> Iterator[File]:
    found: dict[str, File] = {}
    for name in _names():
        content = (_library() / name).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if _is_text(content) and _is_held_out(digest) == (part == "valid"):
            found.setdefault(digest, {"name": name, "sha256": digest, "bytes": len(content) + 1})
    # The order of the digests has no meaning: the first files of it are a fair sample.
    return (found[digest] for digest in sorted(found))


def _names() -> list[str]:
    """Every source file of the library."""
    names: list[str] = []
    for folder, subfolders, files in os.walk(_library()):
        subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
        relative = Path(folder).relative_to(_library())
        names += [(relative / name).as_posix() for name in files if name.endswith(".py")]
    return sorted(names)


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return _SEPARATOR not in content


def _is_held_out(digest: str) -> bool:
    # The last digits, since the order goes by the first ones.
    return int(digest[-8:], 16) < _HELD_OUT_SHARE * 2**32
