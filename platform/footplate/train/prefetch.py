"""Batches prepared for the GPU ahead of need, by a thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["ahead"]

S = TypeVar("S")  # a step
C = TypeVar("C")  # what comes for it
B = TypeVar("B")  # what is made of that

# How often a thread that waits for room looks whether it is still wanted.
_LOOK_S = 0.1
# A stream that waits for a store ends by itself when that answers.
_CLOSING_S = 5.0


def ahead(
    stream: Iterator[tuple[S, C]], prepare: Callable[[C], B], *, depth: int = 2
) -> Iterator[tuple[S, B]]:
    """
    The same steps, each with what ``prepare`` makes of what comes for it.

    Only one thread touches the stream; it ends when this iterator does.

    Args:
        depth: Steps that are prepared and wait, at most.

    Raises:
        BaseException: What the stream or ``prepare`` raises, where its step would come.
    """
    work = _Work(stream, prepare, depth)
    thread = threading.Thread(target=work.run, name="footplate-prefetch", daemon=True)
    thread.start()
    try:
        while (done := work.results.get()) is not None:
            if isinstance(done, BaseException):
                raise done
            yield done
    finally:
        work.stopped.set()
        thread.join(_CLOSING_S)


class _Work(Generic[S, C, B]):
    """What passes between the threads: steps, then an error or None."""

    def __init__(
        self, stream: Iterator[tuple[S, C]], prepare: Callable[[C], B], depth: int
    ) -> None:
        self._stream = stream
        self._prepare = prepare
        self.results: queue.Queue[tuple[S, B] | BaseException | None] = queue.Queue(depth)
        self.stopped = threading.Event()

    def run(self) -> None:
        """Prepare one step after the other."""
        end: BaseException | None = None
        try:
            for step, columns in self._stream:
                if not self._put((step, self._prepare(columns))):
                    break
        except BaseException as error:  # raised where it is waited for
            end = error
        finally:
            if close := getattr(self._stream, "close", None):
                close()
        self._put(end)

    def _put(self, done: tuple[S, B] | BaseException | None) -> bool:
        while not self.stopped.is_set():
            try:
                self.results.put(done, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False
