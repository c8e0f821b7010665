"""Files that are there whole or not at all, and stay when the power is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["sync", "write_file"]

# What file systems answer that cannot do it.
_NOT_FOR_FOLDERS = (errno.EINVAL, errno.ENOTSUP)


def write_file(path: Path, blocks: Iterable[memoryview]) -> None:
    """
    Write a file, or replace it whole; its content is then safe, its name with :func:`sync`.

    Args:
        path: Folders on the way are made.
        blocks: Its content, as bytes; each is written by one call to the system.

    Raises:
        OSError: If that fails; then nothing of it is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The storage library gives such names to what is not whole yet, and never lists them.
    staged = path.with_name(f"{path.name}#{os.getpid()}")
    try:
        with staged.open("wb", buffering=0) as file:
            for block in blocks:
                _write(file.fileno(), block)
            os.fsync(file.fileno())
        staged.replace(path)
    except BaseException:
        with suppress(OSError):
            staged.unlink()
        raise


def sync(path: Path) -> None:
    """
    Make sure that a file or the names in a folder stay when the power is lost, and its own name.

    Raises:
        OSError: If that fails.
    """
    for each in (path, path.parent):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NOT_FOR_FOLDERS:
                raise
        finally:
            os.close(descriptor)


def _write(descriptor: int, block: memoryview) -> None:
    while block:
        block = block[os.write(descriptor, block) :]
