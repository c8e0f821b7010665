"""
What an attempt in a cluster printed: a text in segments, which are written once and never changed.

Segments are numbered from 1. They mostly end with a line.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from footplate.errors import ObjectNotFoundError
from footplate.store.layout import RunPaths
from footplate.store.objects import Store

__all__ = ["read_log"]


def read_log(store: Store, run: RunPaths, attempt: int, *, start: int = 0) -> tuple[str, int]:
    """
    What was printed after a segment.

    Segments that are missing are passed over.

    Args:
        start: The segment after which to begin, as an earlier call returned it; 0 for the
            beginning.

    Returns:
        The text, and the number of the last segment in it, with which a follower asks again.

    Raises:
        StoreError: If the store does not tell.
    """
    parts = []
    for number in _numbers(store, run, attempt):
        if number > start:
            try:
                parts.append(store.get(run.log_segment(attempt, number)))
            except ObjectNotFoundError:
                continue
            start = number
    return b"".join(parts).decode(errors="replace"), start


def _numbers(store: Store, run: RunPaths, attempt: int) -> list[int]:
    stems = (PurePosixPath(info.path).stem for info in store.objects(run.log_segments(attempt)))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())
