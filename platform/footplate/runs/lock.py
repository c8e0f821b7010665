"""One process a run on this machine, by a lock that the operating system takes back."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from footplate.errors import RunBusyError, StoreError, StoreFullError
from footplate.store import Store

__all__ = ["is_locked", "lock_file", "locked"]

# After a kill the driver still has to notice that its parent is gone.
_PATIENCE_S = 20.0
_RETRY_S = 0.1


def lock_file(store: Store, namespace: str, name: str) -> Path:
    """Where the lock of a run's name is kept: beside its runs, or for a bucket on this machine."""
    if store.folder is not None:
        return store.folder / namespace / name / "lock"
    digest = hashlib.sha256(f"{store.uri}/{namespace}/{name}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"footplate-{os.getuid()}" / f"{digest}.lock"


@contextmanager
def locked(
    path: Path,
    what: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[int]:
    """
    Hold a lock.

    The lock belongs to the open file: a child that inherits it keeps it, so it is free only once
    this process and its driver are gone, however they went.

    Args:
        what: The run, for the message.

    Yields:
        The file descriptor to be inherited.

    Raises:
        RunBusyError: If another process that is alive holds it.
        StoreError: If the file can't be made or written.
    """
    with _opened(path) as file:
        deadline = clock() + _PATIENCE_S
        while not _try_lock(file):
            holder = _holder(file)
            if holder is None or _is_alive(holder) or clock() > deadline:
                raise RunBusyError(
                    f"{what} is being worked on by process {holder or 'unknown'}",
                    "Wait for it, or stop it; then run the same command.",
                )
            wait(_RETRY_S)
        _sign(file, path)
        yield file.fileno()


def is_locked(path: Path, *, missing: bool | None = False) -> bool | None:
    """
    Whether some process holds a lock, without holding it.

    Args:
        missing: The answer if there is no such file.

    Returns:
        None if it is not for this user to know.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return missing
    except OSError:
        return None
    return False


def _opened(path: Path) -> IO[str]:
    with _translated(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+", encoding="utf-8", errors="replace")


def _sign(file: IO[str], path: Path) -> None:
    with _translated(path):
        file.truncate(0)
        os.write(file.fileno(), str(os.getpid()).encode())  # leaves nothing to write when closed


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = StoreFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        raise kind(f"cannot write the lock {path}: {error.strerror}") from error


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(file: IO[str]) -> int | None:
    file.seek(0)
    text = file.read()
    return int(text) if text.isdigit() else None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
