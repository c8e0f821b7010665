"""Files that a process needs for a while and nobody else ever sees."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from footplate.errors import StoreError, StoreFullError

__all__ = ["scratch_file"]


@contextmanager
def scratch_file() -> Iterator[IO[bytes]]:
    """
    A file without a name in the folder for temporary files: it goes with the process.

    Raises:
        StoreFullError: If no space is left there.
        StoreError: If it can't be written for another reason.
    """
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            yield file
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFullError(
                f"cannot write to {folder}: no space left",
                "Free space there, or set TMPDIR to a folder that has some; "
                "then run the same command: what was made is kept.",
            ) from error
        raise StoreError(f"cannot write to {folder}: {error}") from error
