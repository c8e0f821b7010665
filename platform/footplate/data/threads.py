"""Threads that read files and end soon when nobody waits for them any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager

__all__ = ["reading_threads"]

OnBytes = Callable[[int], None]


@contextmanager
def reading_threads(count: int, on_bytes: OnBytes) -> Iterator[tuple[ThreadPoolExecutor, OnBytes]]:
    """
    A pool, and what its work calls after each block that it has read.

    However the block of the caller ends, Ctrl-C included, what has not begun is left out, and
    what has begun ends at its next call, however large the file is.

    Args:
        count: Of threads.
        on_bytes: Is told the size of each block.
    """
    is_over = threading.Event()

    def told(size: int) -> None:
        if is_over.is_set():
            raise CancelledError
        on_bytes(size)

    pool = ThreadPoolExecutor(max_workers=count)
    try:
        yield pool, told
    finally:
        is_over.set()
        pool.shutdown(cancel_futures=True)
