"""
A folder that goes with the last process that uses it.

Whoever uses it holds the lock of a file beside it together with others; whoever removes both
holds it alone. The kernel lets go of the locks of a process that is killed, so what that one left
can be told from what is in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["lock_of", "remove_unused", "used", "used_if_there"]

_SUFFIX = ".lock"


def lock_of(folder: Path) -> Path:
    """The file whose lock says who uses a folder."""
    return folder.with_name(f"{folder.name}{_SUFFIX}")


@contextmanager
def used(folder: Path) -> Iterator[None]:
    """
    Use a folder, which need not be there yet; the last to leave removes it.

    Raises:
        OSError: If there is no place for it.
    """
    lock = lock_of(folder)
    try:
        with _held(lock):
            yield
    finally:
        remove_unused(folder)


@contextmanager
def used_if_there(folder: Path) -> Iterator[bool]:
    """
    Use a folder if its lock is there, and say whether that is so.

    It is there while somebody uses the folder; and after a process was killed that was the last
    to do so, until somebody removes what that one left.
    """
    file = _opened(lock_of(folder))
    if file is None:
        yield False
        return
    try:
        with file:
            fcntl.flock(file, fcntl.LOCK_SH)
            # Who holds it alone has come to remove it.
            yield _is_at(lock_of(folder), file)
    finally:
        remove_unused(folder)


def remove_unused(folder: Path) -> None:
    """Remove a folder and its lock, unless somebody uses it."""
    lock = lock_of(folder)
    try:
        with lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(lock, held):
                return  # somebody else was faster, and perhaps begins anew
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)
    except OSError:
        return  # in use, or somebody else's


def _opened(lock: Path) -> IO[str] | None:
    try:
        return lock.open("r")
    except OSError:
        return None


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    while True:
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if _is_at(lock, file):
                yield
                return


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether an open file still is the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
