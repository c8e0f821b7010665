"""Threads that read, and keep nobody waiting who has no use for them any more."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["at_once", "reading_threads"]

OnBytes = Callable[[int], None]

_AT_ONCE = 16

T = TypeVar("T")  # a piece of work
R = TypeVar("R")


def at_once(do: Callable[[T], R], work: Sequence[T]) -> list[R]:
    """
    What ``do`` makes of each piece of work, several of them in threads at the same time.

    The interpreter waits at its end for the threads of a pool, however long a store lets these
    wait; these it does not wait for.

    Raises:
        BaseException: What ``do`` raised for the first piece of which it raised something.
    """
    if len(work) < 2:
        return list(map(do, work))
    futures: list[Future[R]] = [Future() for _ in work]
    waiting = deque(zip(futures, work, strict=True))

    def serve() -> None:
        while True:
            try:
                future, piece = waiting.popleft()
            except IndexError:
                return
            try:
                future.set_result(do(piece))
            except BaseException as error:  # raised where the result is asked for
                future.set_exception(error)

    for _ in range(min(len(work), _AT_ONCE)):
        threading.Thread(target=serve, name="footplate-read", daemon=True).start()
    try:
        return [future.result() for future in futures]
    finally:
        waiting.clear()


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
