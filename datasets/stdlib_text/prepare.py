"""
The source text of Python's own standard library, cut into windows of bytes.

Text that every machine with Python has, and enough of it for a small language model. A file is
held out or not for what is in it, so that even two files of the same content are in one part.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from footplate.data.build import build_dataset, fixed_binary_column

# What others installed, and what the library itself is tested with.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
_HELD_OUT_SHARE = 0.1
# Stands after every file.
_SEPARATOR = b"\0"


def train(folder: Path, *, length: int = 256, max_bytes: int | None = None) -> Path:
    """
    The part to train on: about nine files of ten.

    Args:
        folder: Where data sets are kept.
        length: Predictions in a sample; it has one byte more, of which the first is only given.
        max_bytes: Take no more than so many bytes of text.

    Returns:
        The manifest of a data set with one column, ``text``: uint8 of shape ``[length + 1]``.
    """
    return _build(folder, "train", length, max_bytes)


def valid(folder: Path, *, length: int = 256, max_bytes: int | None = None) -> Path:
    """The part that is held out, in the form of :func:`train`."""
    return _build(folder, "valid", length, max_bytes)


def _build(folder: Path, part: str, length: int, max_bytes: int | None) -> Path:
    if length < 1:
        raise ValueError(f"length is {length}; a sample needs at least one byte to predict")
    files = {
        digest: content
        for digest, content in _source_files(Path(sysconfig.get_path("stdlib")))
        if _is_held_out(digest) == (part == "valid")
    }
    # The order of the digests has no meaning: the first files of it are a fair sample.
    digests = sorted(files)
    return build_dataset(
        folder,
        _tables((files[digest] for digest in digests), length + 1, max_bytes),
        name=f"stdlib-text-{part}",
        key={
            "python": platform.python_version(),
            "files": hashlib.sha256(b"".join(digests)).hexdigest(),
            "length": length,
            "max_bytes": max_bytes,
        },
    )


def _source_files(library: Path) -> Iterator[tuple[bytes, bytes]]:
    """Digest and content of every source file that is text."""
    for folder, subfolders, names in os.walk(library):
        subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
        for name in names:
            if name.endswith(".py"):
                content = (Path(folder) / name).read_bytes()
                if _is_text(content):
                    yield hashlib.sha256(content).digest(), content


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return _SEPARATOR not in content


def _is_held_out(digest: bytes) -> bool:
    # The last bytes, since the order goes by the first ones.
    return int.from_bytes(digest[-4:], "big") < _HELD_OUT_SHARE * 2**32


def _tables(files: Iterable[bytes], window: int, max_bytes: int | None) -> Iterator[pa.Table]:
    text = np.frombuffer(b"".join(file + _SEPARATOR for file in files)[:max_bytes], np.uint8)
    samples = text[: len(text) // window * window].reshape(-1, window)
    field, column = fixed_binary_column("text", samples)
    yield pa.Table.from_arrays([column], schema=pa.schema([field]))
