"""
What the driver prints, kept in the store as well.

Ray keeps the output of a job on the head node, and it is gone with that. The ranks' lines are in
it: Ray prints them through the driver. So standard output and standard error are led through a
pipe, at the level of the operating system's file descriptors, and a thread hands on what comes:
to where it went before, to the log of the container, and to the store in segments.
"""

from __future__ import annotations

import codecs
import os
import select
import sys
import threading
import time
from contextlib import suppress

from footplate.errors import StoreError
from footplate.store import RunPaths, Store

__all__ = ["OutputTee"]

_OUT, _ERR = 1, 2
_CHUNK = 64 * 1024
_SEGMENT = 256 * 1024
# What waits while the store is away; more is dropped, and the log says so.
_MOST_WAITING = 8 * 1024 * 1024
# A follower sees lines after so long. The interval doubles with every so many segments, up to a
# bound, or a week's log would be a million objects.
_INTERVAL_S = 2.0
_LONGEST_INTERVAL_S = 30.0
_SEGMENTS_PER_DOUBLING = 500
_CLOSING_S = 15.0
_LOOK_S = 0.2


class OutputTee:
    """
    Leads standard output and standard error through a pipe; made when an attempt is claimed.

    Nothing here ever fails or slows down training: what the store or the container's log does
    not take is left out.

    Args:
        attempt: Whose log it is.
        container: The file that container logs are collected from; None to leave it out.
    """

    def __init__(
        self, store: Store, run: RunPaths, attempt: int, *, container: str | None = None
    ) -> None:
        self._segments = _Segments(store, run, attempt)
        self._saved = (os.dup(_OUT), os.dup(_ERR))
        self._container = _opened(container, unlike=self._saved[0]) if container else None
        self._closing = threading.Event()
        read_end, write_end = os.pipe()
        _flush()
        for standard in (_OUT, _ERR):
            os.dup2(write_end, standard)
        os.close(write_end)
        self._thread = threading.Thread(
            target=self._hand_on, args=(read_end,), name="output", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Let output go where it went before, and store the rest, as far as that is possible."""
        _flush()
        for saved, standard in zip(self._saved, (_OUT, _ERR), strict=True):
            os.dup2(saved, standard)
        self._closing.set()
        self._thread.join(_CLOSING_S)
        self._segments.close(_CLOSING_S)

    def _hand_on(self, read_end: int) -> None:
        while self._has_more(read_end) and (content := os.read(read_end, _CHUNK)):
            with suppress(OSError):
                _write_all(self._saved[0], content)
            if self._container is not None:
                with suppress(OSError):  # a reader that is too slow misses some
                    os.write(self._container, content)
            self._segments.append(content)
        os.close(read_end)

    def _has_more(self, read_end: int) -> bool:
        # The end of the pipe may never come: a child that lives on has inherited it.
        while not select.select([read_end], [], [], _LOOK_S)[0]:
            if self._closing.is_set():
                return False
        return True


class _Segments:
    """What waits for the store, and the thread that brings it there."""

    def __init__(self, store: Store, run: RunPaths, attempt: int) -> None:
        self._store = store
        self._run = run
        self._attempt = attempt
        self._waiting = bytearray()
        self._dropped = 0
        self._number = 1
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name="log segments", daemon=True)
        self._thread.start()

    def append(self, content: bytes) -> None:
        with self._changed:
            self._waiting += content
            if (excess := len(self._waiting) - _MOST_WAITING) > 0:
                self._dropped += excess
                del self._waiting[:excess]
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _follow(self) -> None:
        while (content := self._next()) is not None:
            while not self._written(content):
                time.sleep(_INTERVAL_S)
            self._number += 1

    def _next(self) -> bytes | None:
        """The next segment, once there is enough or it has waited long enough; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(
                lambda: len(self._waiting) >= _SEGMENT or self._closing, self._interval_s
            )
            if not self._waiting:
                return None
            end = self._whole_lines()
            content, self._waiting = bytes(self._waiting[:end]), self._waiting[end:]
            dropped, self._dropped = self._dropped, 0
        missing = f"... {dropped} bytes are missing here: the store did not take them\n"
        return missing.encode() + content if dropped else content

    @property
    def _interval_s(self) -> float:
        doublings = self._number // _SEGMENTS_PER_DOUBLING
        return min(_INTERVAL_S * 2.0**doublings, _LONGEST_INTERVAL_S)

    def _whole_lines(self) -> int:
        """Where the segment ends: with a line, unless it is the last one or one line is all."""
        end = self._waiting.rfind(b"\n", 0, _SEGMENT) + 1
        if self._closing and len(self._waiting) <= _SEGMENT:
            return len(self._waiting)
        return end or _whole_characters(self._waiting[:_SEGMENT])

    def _written(self, content: bytes) -> bool:
        try:
            self._store.put(self._run.log_segment(self._attempt, self._number), content)
        except StoreError:
            return False
        return True


def _whole_characters(content: bytearray) -> int:
    """How many bytes of it are not the beginning of a character that is cut off."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    decoder.decode(content)
    cut_off, _ = decoder.getstate()
    return len(content) - len(cut_off) or len(content)


def _opened(path: str, *, unlike: int) -> int | None:
    """A file that never makes a writer wait; None if it can't be had, or output goes there now."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    if os.path.sameopenfile(file, unlike):
        os.close(file)
        return None
    return file


def _write_all(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
