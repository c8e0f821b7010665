"""
The metric log: every step's metrics in the object store, as rank 0 saw them.

It is the truth about the metrics of a run; MLflow is a projection of it that can be brought up
to date at any time. Rank 0 appends points and flushes them as segments, numbered without a gap
within their attempt, so that a follower finds the next one by its name and never has to list.

A segment is JSON lines. Finite numbers keep every bit (the shortest text that reads back as
the same number); JSON has no others, so those are text: ``"nan"``, ``"inf"``, ``"-inf"``.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from footplate.errors import ObjectExistsError, ObjectNotFoundError, StoreError
from footplate.store import AttemptPaths, Claim, RunPaths, Store, counted_until, read_claims

__all__ = ["MetricLog", "MetricPoint", "MetricReader", "read_points"]

# Points a reader gathers before it hands them on: enough to make requests worth their while.
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """
    Metrics of one step.

    Attributes:
        step: Optimizer steps done.
        time_ms: When, in milliseconds since the epoch.
        metrics: Name to value; NaN and infinities are kept.
    """

    step: int
    time_ms: int
    metrics: Mapping[str, float]


class MetricLog:
    """
    The writing end, for rank 0.

    Appending costs nothing and touches no storage. The caller flushes: before a checkpoint is
    committed, so that no counted step lacks its metrics, and every few seconds between.

    Args:
        attempt: Whose folder the segments go to. A rank 0 that takes over within the attempt
            goes on numbering where the one before it stopped.
        clock: Seconds, for :attr:`waiting_s`.
    """

    def __init__(
        self, store: Store, attempt: AttemptPaths, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._attempt = attempt
        self._clock = clock
        self._points: list[MetricPoint] = []
        self._since = 0.0
        self._next: int | None = None
        self._flushing = threading.Lock()

    @property
    def waiting_s(self) -> float:
        """For how long the oldest point that is not flushed has been waiting; 0 if none is."""
        return self._clock() - self._since if self._points else 0.0

    def append(self, point: MetricPoint) -> None:
        """Keep a point for the next flush."""
        if not self._points:
            self._since = self._clock()
        self._points.append(point)

    def flush(self) -> None:
        """
        Write what was appended as the next segment; with nothing to write, do nothing.

        May run in another thread than :meth:`append`: operations of a list are atomic.

        Raises:
            StoreError: If it cannot be written. The points are kept for the next flush.
        """
        with self._flushing:
            points = self._points[:]
            if not points:
                return
            self._write("".join(map(_encoded, points)).encode())
            del self._points[: len(points)]
            self._since = self._clock()

    def _write(self, content: bytes) -> None:
        if self._next is None:
            self._next = max(_segment_numbers(self._store, self._attempt), default=0) + 1
        while not self._created(self._attempt.metric_segment(self._next), content):
            self._next += 1
        self._next += 1

    def _created(self, path: str, content: bytes) -> bool:
        try:
            self._store.create(path, content)
        except ObjectExistsError:
            # Ours, if only the answer to the write was lost; otherwise written by a rank 0 that
            # this one has replaced and that has not noticed yet.
            return self._store.get(path) == content
        return True


class MetricReader:
    """
    The following end: each call of :meth:`read` gives what has been added since.

    An attempt is followed until a newer one has been claimed and it is read to its end.
    """

    def __init__(self, store: Store, run: RunPaths) -> None:
        self._store = store
        self._run = run
        self._next: dict[int, int] = {}
        self._finished: set[int] = set()

    def read(self, claims: Sequence[Claim]) -> Iterator[list[MetricPoint]]:
        """
        New points that count, oldest attempt first, in chunks.

        A chunk is done with only when the next one is asked for: if the consumer raises, the
        next call gives the same chunk again.

        Args:
            claims: All claims of the run, oldest first.
        """
        bounds = counted_until(claims)
        for claim in claims:
            if claim.attempt in self._finished:
                continue
            yield from self._chunks(claim.attempt, bounds[claim.attempt])
            if claim is not claims[-1]:
                self._finished.add(claim.attempt)

    def _chunks(self, attempt: int, bound: int | None) -> Iterator[list[MetricPoint]]:
        while True:
            start = number = self._next.get(attempt, 1)
            points: list[MetricPoint] = []
            while len(points) < _CHUNK:
                segment = self._segment(attempt, number)
                if segment is None:
                    break
                points += _counted(segment, bound)
                number += 1
            if number == start:
                return
            yield points
            self._next[attempt] = number

    def _segment(self, attempt: int, number: int) -> list[MetricPoint] | None:
        path = self._run.attempt(attempt).metric_segment(number)
        try:
            return _read_segment(self._store, path)
        except ObjectNotFoundError:
            return None


def read_points(store: Store, run: RunPaths) -> list[MetricPoint]:
    """
    The metrics of a run: each metric of each step once, ordered by step.

    Of an older attempt only the steps count that its successors built on. Where a step was
    repeated (by a worker group that was started again within an attempt) the newest value
    counts: it belongs to the weights that went on.
    """
    claims = read_claims(store, run)
    bounds = counted_until(claims)
    points: list[MetricPoint] = []
    with ThreadPoolExecutor(max_workers=16) as pool:
        for claim in claims:
            attempt = run.attempt(claim.attempt)
            paths = map(attempt.metric_segment, sorted(_segment_numbers(store, attempt)))
            for segment in pool.map(lambda path: _read_segment(store, path), paths):
                points += _counted(segment, bounds[claim.attempt])
    return sorted(_newest(points), key=lambda point: point.step)


def _newest(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """The points without what a later one says again."""
    seen: set[tuple[int, str]] = set()
    kept = []
    for point in reversed(points):
        metrics = {
            name: value for name, value in point.metrics.items() if (point.step, name) not in seen
        }
        seen.update((point.step, name) for name in metrics)
        if metrics:
            kept.append(replace(point, metrics=metrics))
    return kept[::-1]


def _counted(points: Sequence[MetricPoint], bound: int | None) -> Iterator[MetricPoint]:
    return (point for point in points if bound is None or point.step <= bound)


def _segment_numbers(store: Store, attempt: AttemptPaths) -> list[int]:
    stems = (PurePosixPath(info.path).stem for info in store.objects(attempt.metrics))
    return [int(stem) for stem in stems if stem.isdigit()]


def _encoded(point: MetricPoint) -> str:
    metrics = {name: _portable(float(value)) for name, value in point.metrics.items()}
    line = {"step": point.step, "time_ms": point.time_ms, "metrics": metrics}
    return json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"


def _portable(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _read_segment(store: Store, path: str) -> list[MetricPoint]:
    content = store.get(path)
    try:
        return [_decoded(line) for line in content.splitlines()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{store.locate(path)} is no segment of a metric log: {error}") from error


def _decoded(line: bytes) -> MetricPoint:
    values = json.loads(line)
    metrics = {name: float(value) for name, value in values["metrics"].items()}
    return MetricPoint(int(values["step"]), int(values["time_ms"]), metrics)
