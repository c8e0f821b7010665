"""Reading a log that comes in segments, from its beginning and from its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.store import RunPaths, Store, newest_segments, segments

_RUN = RunPaths(namespace="team", name="toy", uid="uid")


class _CountingStore(Store):
    """A folder that counts how many objects are read from it."""

    reads = 0

    def get(self, path: str) -> bytes:
        self.reads += 1
        return super().get(path)


@pytest.fixture
def store(tmp_path: Path) -> _CountingStore:
    """A log in which a segment is missing, and something else is there."""
    store = _CountingStore(str(tmp_path))
    for number in (1, 3, 4, 10):
        store.put(_RUN.log_segment(1, number), f"{number} begins\n{number} ends\n".encode())
    store.put(f"{_RUN.log_segments(1)}/notes.txt", b"not ours")
    return store


def _text(number: int) -> str:
    return f"{number} begins\n{number} ends\n"


def test_a_follower_reads_on_where_it_stopped(store: Store) -> None:
    """By number, which says more than the order of names; half a log is better than none."""
    assert list(segments(store, _RUN, 1)) == [(n, _text(n)) for n in (1, 3, 4, 10)]
    assert list(segments(store, _RUN, 1, after=4)) == [(10, _text(10))]
    assert list(segments(store, _RUN, 1, after=10)) == []
    assert list(segments(store, _RUN, 2)) == []


def test_no_more_is_read_than_asked_for(store: _CountingStore) -> None:
    """A log of a week fits into nobody's memory."""
    next(segments(store, _RUN, 1))
    assert store.reads == 1


@pytest.mark.parametrize(
    ("lines", "read"), [(0, [10]), (1, [10]), (2, [4, 10]), (5, [3, 4, 10]), (9, [1, 3, 4, 10])]
)
def test_the_end_is_read_backwards(store: _CountingStore, lines: int, read: list[int]) -> None:
    """As far as it takes to know where the first of the lines begins."""
    assert newest_segments(store, _RUN, 1, lines=lines) == ([_text(n) for n in read], 10)
    assert store.reads == len(read)


def test_the_first_of_the_last_lines_is_whole(store: Store) -> None:
    """Also where it began in the segment before."""
    store.put(_RUN.log_segment(1, 11), b"a line in ")
    store.put(_RUN.log_segment(1, 12), b"two parts\nlast\n")
    texts, newest = newest_segments(store, _RUN, 1, lines=2)
    assert "".join(texts).splitlines()[-2:] == ["a line in two parts", "last"]
    assert newest == 12


def test_a_log_without_segments_is_empty(store: Store) -> None:
    """An attempt that has not printed anything yet, or never will."""
    assert newest_segments(store, _RUN, 2, lines=3) == ([], 0)
