"""Work in a thread for as long as something else lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["in_background"]


@contextmanager
def in_background(
    name: str, work: Callable[[threading.Event], None], *, closing_s: float
) -> Iterator[None]:
    """
    Let a thread work as long as this context lasts.

    Args:
        name: Of the thread.
        work: Is given what is set when the context ends, and returns soon after.
        closing_s: How long its end is waited for.
    """
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(closing_s)
