"""
What an attempt in a cluster printed: a text in segments, which are written once and never changed.

Segments are numbered from 1. They mostly end with a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from footplate.errors import ObjectNotFoundError
from footplate.store.layout import RunPaths
from footplate.store.objects import Store

__all__ = ["newest_segments", "segments"]


def segments(
    store: Store, run: RunPaths, attempt: int, *, after: int = 0
) -> Iterator[tuple[int, str]]:
    """
    What was printed after a segment, each segment read when it is asked for.

    Segments that are missing are passed over.

    Args:
        after: The number of the segment; 0 for the beginning.

    Yields:
        The number of a segment, with which a follower asks again, and its text.

    Raises:
        StoreError: If the store does not tell.
    """
    for number in _numbers(store, run, attempt):
        if number > after and (text := _text(store, run, attempt, number)) is not None:
            yield number, text


def newest_segments(
    store: Store, run: RunPaths, attempt: int, *, lines: int
) -> tuple[list[str], int]:
    """
    As many segments from the end as it takes to have the last lines whole.

    Returns:
        Their texts, oldest first, and the number of the last one, with which a follower asks on;
        0 if nothing was printed yet.

    Raises:
        StoreError: If the store does not tell.
    """
    texts: list[str] = []
    newest = 0
    for number in reversed(_numbers(store, run, attempt)):
        # One end of a line more than there are lines: before it the first of them begins.
        if sum(text.count("\n") for text in texts) > lines:
            break
        if (text := _text(store, run, attempt, number)) is not None:
            newest = newest or number
            texts.append(text)
    return texts[::-1], newest


def _text(store: Store, run: RunPaths, attempt: int, number: int) -> str | None:
    try:
        return store.get(run.log_segment(attempt, number)).decode(errors="replace")
    except ObjectNotFoundError:
        return None


def _numbers(store: Store, run: RunPaths, attempt: int) -> list[int]:
    stems = (PurePosixPath(info.path).stem for info in store.objects(run.log_segments(attempt)))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())
