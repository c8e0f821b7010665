"""
Batches gathered ahead of need in the process that trains on them.

What is read next is known, since the plan is. One thread goes ahead in the plan and cuts it into
chunks of steps; several read the row groups that these need, in the order of need, as long as
there is room, and put what is in them side by side; one copies the samples of a whole chunk from
there to where the batches are views of it.

In memory are, at most: row groups of ``ahead_bytes``, or those of one chunk where these are more,
in places that stay as large as the largest row group and stay until the end; the row groups that
are being read, one a thread, before and after decoding; and four chunks: the one that is used, two
that wait, one that is being made, and what the first ones took, which are smaller; and what the
reader keeps of row groups whose lengths were asked for. None of it depends on the size of the data
set. The address space has more places: one for each thread beyond these row groups.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow

from footplate.data.batches import Assembly, Sources
from footplate.data.buffers import Buffers, Shelf
from footplate.data.columns import Columns, Pieces
from footplate.data.mapped_files import Views
from footplate.data.reader import RowGroupReader
from footplate.data.selection import Selection
from footplate.errors import DataError
from footplate.spec import Bucket, Pack
from footplate.store.patience import ReadingStopped

__all__ = ["LEAST_AHEAD_BYTES", "gathered", "gathered_at_once"]

LEAST_AHEAD_BYTES = 256 << 20
"""Of row groups in memory, however small they are."""

P = TypeVar("P")  # one step of a plan

# Measured: larger ones are slower, since the memory of each is new to the kernel.
_CHUNK_BYTES = 4 << 20
_CHUNK_PIECES = 1 << 16
_WAITING_CHUNKS = 2
# The plan itself takes memory too, where samples are a few bytes.
_PLANNED_PIECES = 1 << 20
_LOCAL_THREADS = 2
_REMOTE_THREADS = 16
# Of a bucket's answers at once: what a line of 1 GB/s carries in the time that one takes. More only
# takes memory, each part of which is new to the kernel, and so is slower.
_ON_THE_WAY_BYTES = 64 << 20
_LEAST_REMOTE_THREADS = 4
_CLOSING_S = 5.0


def gathered(
    plan: Iterable[tuple[P, Selection]],
    reader: RowGroupReader,
    *,
    pack: Pack | None = None,
    bucket: Bucket | None = None,
    ahead_bytes: int = LEAST_AHEAD_BYTES,
    threads: int | None = None,
) -> Iterator[tuple[P, Columns]]:
    """
    Pair each planned step with its batch.

    An array of a batch can be written to, and shares no memory with another batch; it is a part
    of some MiB that are used again when the last of them is gone.

    Args:
        plan: Gone through in a thread of its own, some way ahead.
        pack: How the plan was packed, if it was.
        bucket: How it was bucketed.
        ahead_bytes: Of row groups in memory. What is shuffled together should fit in twice.
        threads: That read; None takes a few for files of this machine and more for a bucket,
            whose answers take their time.

    Raises:
        DataError: When the step is reached whose samples cannot be read.
        StoreError: Likewise.
    """
    # Of those that wait, the one that is made, and the one that is used: all columns.
    buffers = Buffers(kept=(_WAITING_CHUNKS + 2) * len(reader.fields))
    assembly = Assembly(fields=reader.fields, pack=pack, bucket=bucket, empty=buffers.empty)
    threads = threads or _threads(reader)
    shelf = Shelf(ahead_bytes // reader.largest + threads, reader.most_rows)
    pipeline = _Pipeline(plan, reader, assembly, ahead_bytes, shelf)
    try:
        pipeline.start(threads)
        yield from pipeline
    finally:
        pipeline.close()


def _threads(reader: RowGroupReader) -> int:
    if not reader.is_remote:
        return _LOCAL_THREADS
    fitting = _ON_THE_WAY_BYTES // reader.largest
    return min(max(fitting, _LEAST_REMOTE_THREADS), _REMOTE_THREADS)


def gathered_at_once(
    selections: Sequence[Selection],
    reader: RowGroupReader,
    *,
    pack: Pack | None = None,
    bucket: Bucket | None = None,
) -> list[Columns]:
    """
    Some batches, in this thread.

    Raises:
        DataError: If one of its samples cannot be read.
        StoreError: Likewise.
    """
    assembly = Assembly(fields=reader.fields, pack=pack, bucket=bucket)
    groups, pieces = _needed(reader, Selection.concatenated(selections))
    tables = reader.read_all(groups)
    parts = [_sources(*each, reader, assembly) for each in zip(groups, tables, strict=True)]
    return assembly.batches(selections, parts, pieces)


def _sources(
    group: int, table: pyarrow.Table, reader: RowGroupReader, assembly: Assembly
) -> Sources:
    """The columns of a row group."""
    try:
        return assembly.sources(table)
    except DataError as error:
        raise DataError(f"{reader.name(group)}: {error.message}", error.hint) from error


def _needed(reader: RowGroupReader, selection: Selection) -> tuple[list[int], Pieces]:
    """The row groups of some samples, and the pieces of each."""
    groups, pieces = Pieces.of(*reader.locate(selection.ids))
    if not len(groups):
        # What the columns are is known from any of them.
        nothing = np.empty(0, dtype=np.int64)
        return [0], Pieces(0, [nothing], [nothing])
    return groups.tolist(), pieces


@dataclass(slots=True)
class _Chunk(Generic[P]):
    """
    Some consecutive steps.

    Attributes:
        groups: That their samples are in.
    """

    steps: list[P]
    selections: list[Selection]
    groups: list[int]
    pieces: Pieces

    def before(self, failed: set[int], reader: RowGroupReader) -> _Chunk[P] | None:
        """The steps that come before the first one that needs one of these row groups."""
        # None of them does where a row group is needed only to know what the columns are.
        count = next(
            (
                number
                for number, selection in enumerate(self.selections)
                if not failed.isdisjoint(reader.locate(selection.ids)[0].tolist())
            ),
            0,
        )
        return _chunk(self.steps[:count], self.selections[:count], reader) if count else None


def _chunk(steps: list[P], selections: list[Selection], reader: RowGroupReader) -> _Chunk[P]:
    groups, pieces = _needed(reader, Selection.concatenated(selections))
    return _Chunk(steps, selections, groups, pieces)


def _chunks(
    plan: Iterable[tuple[P, Selection]], reader: RowGroupReader, pack: Pack | None
) -> Iterator[_Chunk[P]]:
    """Cut a plan: first one step, which so comes soon; then twice as many, as far as they fit."""
    steps: list[P] = []
    selections: list[Selection] = []
    size = pieces = 0
    most = 1
    for step, selection in plan:
        steps.append(step)
        selections.append(selection)
        size += len(selection) * (reader.row_size if pack is None else 8 * pack.length)
        pieces += len(selection.ids)
        if len(steps) >= most or size >= _CHUNK_BYTES or pieces >= _CHUNK_PIECES:
            yield _chunk(steps, selections, reader)
            steps, selections, size, pieces = [], [], 0, 0
            most *= 2
    if steps:
        yield _chunk(steps, selections, reader)


class _End:
    """After the last chunk."""


_Done = list[tuple[P, Columns]] | BaseException | _End  # what a consumer gets


class _Pipeline(Generic[P]):
    """The threads, and what passes between them under one lock."""

    def __init__(
        self,
        plan: Iterable[tuple[P, Selection]],
        reader: RowGroupReader,
        assembly: Assembly,
        ahead_bytes: int,
        shelf: Shelf,
    ) -> None:
        self._plan = plan
        self._reader = reader
        self._assembly = assembly
        self._ahead_bytes = ahead_bytes
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        # Chunks that are planned, row groups to be read, and what has become of them.
        self._planned: deque[_Chunk[P]] = deque()
        self._planned_pieces = 0
        self._is_under_way = False  # from the first chunk on
        self._end: BaseException | _End | None = None
        self._wanted: dict[int, int] = {}  # with their sizes, in the order of need
        self._wanted_bytes = 0
        self._needs: Counter[int] = Counter()
        self._held: OrderedDict[int, Sources] = OrderedDict()
        self._shelf = shelf
        self._places: dict[int, int | None] = {}  # of what is held, on the shelf
        self._sizes: dict[int, int] = {}  # of what is held or being read
        self._held_bytes = 0
        self._failed: dict[int, BaseException] = {}
        self._done: deque[_Done[P]] = deque()
        # One lock and a condition for each that waits, so that nobody is woken in vain.
        self._lock = threading.RLock()
        self._may_plan = threading.Condition(self._lock)
        self._may_read = threading.Condition(self._lock)
        self._may_gather = threading.Condition(self._lock)
        self._may_use = threading.Condition(self._lock)

    def start(self, readers: int) -> None:
        """Begin to work ahead."""
        _running.add(self)
        work = [self._plan_ahead, self._gather_chunks, *[self._read_groups] * readers]
        for target in work:
            thread = threading.Thread(target=target, name="footplate-data", daemon=True)
            thread.start()
            self._threads.append(thread)

    def __iter__(self) -> Iterator[tuple[P, Columns]]:
        while True:
            with self._lock:
                while not self._done:
                    self._may_use.wait()
                done = self._done.popleft()
                self._may_gather.notify()
            if isinstance(done, _End):
                return
            if isinstance(done, BaseException):
                raise done
            yield from done

    def close(self) -> None:
        """End the threads; one that waits for a store ends by itself when that answers."""
        self._stopped.set()
        with self._lock:
            for condition in (self._may_plan, self._may_read, self._may_gather):
                condition.notify_all()
        until = time.monotonic() + _CLOSING_S  # for all of them: a store may answer none
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0))
        _running.discard(self)

    def _plan_ahead(self) -> None:
        end: BaseException | _End = _End()
        try:
            for chunk in _chunks(self._plan, self._reader, self._assembly.pack):
                if not self._add(chunk):
                    return
        except BaseException as error:  # whatever the plan raises is raised where it is used
            end = error
        finally:
            # It may have threads and tasks of its own.
            if isinstance(self._plan, Generator):
                self._plan.close()
        with self._lock:
            self._end = end
            self._may_gather.notify()

    def _add(self, chunk: _Chunk[P]) -> bool:
        """Take a chunk into the plan, and wait until there is room for another one."""
        with self._lock:
            self._planned.append(chunk)
            self._planned_pieces += chunk.pieces.count
            for group in chunk.groups:
                self._needs[group] += 1
                if group not in self._sizes and group not in self._wanted:
                    self._wanted[group] = self._reader.size(group)
                    self._wanted_bytes += self._wanted[group]
            self._may_read.notify_all()
            self._may_gather.notify()
            while not self._stopped.is_set() and self._is_far_ahead():
                self._may_plan.wait()
            return not self._stopped.is_set()

    def _is_far_ahead(self) -> bool:
        """
        Whether the plan needs no look further.

        It looks beyond what there is room for: so it is known what of that will be needed again.
        """
        is_looked_beyond = bool(self._wanted) and self._wanted_bytes >= self._ahead_bytes // 2
        return is_looked_beyond or self._planned_pieces >= _PLANNED_PIECES

    def _read_groups(self) -> None:
        while (group := self._next_group()) is not None:
            try:
                sources, place, size = self._read(group)
            except ReadingStopped:
                return
            except BaseException as error:  # raised where the samples are used
                with self._lock:
                    self._failed[group] = error
            else:
                with self._lock:
                    self._held[group] = sources
                    self._places[group] = place
                    self._set_size(group, size)
                del sources
            with self._lock:
                self._may_gather.notify()

    def _read(self, group: int) -> tuple[Sources, int | None, int]:
        """A row group, its place on the shelf, and its size."""
        views = Views()
        sources, place, size = self._copied(group, views)
        if not views.are_unchanged:
            # Something else may have been copied than what was compared with the manifest.
            self._shelf.clear(place)
            sources, place, size = self._copied(group, None)
        return sources, place, size

    def _copied(self, group: int, views: Views | None) -> tuple[Sources, int | None, int]:
        table = self._reader.read(group, self._stopped, views)
        sources = _sources(group, table, self._reader, self._assembly)
        return *self._shelf.put(sources), table.nbytes

    def _next_group(self) -> int | None:
        """The row group that is needed first, as soon as there is room for it."""
        with self._lock:
            while not self._stopped.is_set():
                group = next(iter(self._wanted), None)
                if group is not None and self._make_room(group):
                    size = self._wanted.pop(group)
                    self._wanted_bytes -= size
                    self._set_size(group, size)
                    self._may_plan.notify()
                    return group
                self._may_read.wait()
            return None

    def _make_room(self, group: int) -> bool:
        """Let go of what is needed no more, least recently used first, until there is room."""
        is_needed_next = group in self._planned[0].groups
        if not self._is_under_way:
            return is_needed_next  # nothing takes bandwidth from what the first batch needs
        most = self._ahead_bytes - self._wanted[group]
        for held in list(self._held):
            if self._held_bytes <= most:
                break
            if not self._needs[held]:
                del self._held[held]
                self._shelf.clear(self._places.pop(held))
                self._held_bytes -= self._sizes.pop(held)
        return self._held_bytes <= most or is_needed_next

    def _set_size(self, group: int, size: int) -> None:
        self._held_bytes += size - self._sizes.get(group, 0)
        self._sizes[group] = size

    def _gather_chunks(self) -> None:
        while (chunk := self._next_chunk()) is not None:
            outcome = self._outcome(chunk) if isinstance(chunk, _Chunk) else [chunk]
            with self._lock:
                self._done.extend(outcome)
                self._may_use.notify()
                if isinstance(chunk, _Chunk):
                    self._release(chunk)

    def _outcome(self, chunk: _Chunk[P]) -> list[_Done[P]]:
        """The batches of a chunk, up to the first one that cannot be made, and why."""
        outcome: list[_Done[P]] = []
        try:
            failed = [group for group in chunk.groups if group in self._failed]
            whole = chunk.before(set(failed), self._reader) if failed else chunk
            if whole is not None:
                outcome.append(self._batches(whole))
            outcome.extend(self._failed[group] for group in failed[:1])
        except BaseException as error:  # raised where the batches are used
            outcome.append(error)
        return outcome

    def _next_chunk(self) -> _Chunk[P] | BaseException | _End | None:
        """The next chunk whose row groups are there, or that there is none."""
        with self._lock:
            while not self._stopped.is_set():
                if len(self._done) < _WAITING_CHUNKS:
                    if self._planned and self._is_there(self._planned[0]):
                        return self._planned[0]
                    if not self._planned and self._end is not None:
                        end, self._end = self._end, None
                        return end
                self._may_gather.wait()
            return None

    def _is_there(self, chunk: _Chunk[P]) -> bool:
        return all(group in self._held or group in self._failed for group in chunk.groups)

    def _batches(self, chunk: _Chunk[P]) -> list[tuple[P, Columns]]:
        parts = [self._held[group] for group in chunk.groups]
        batches = self._assembly.batches(chunk.selections, parts, chunk.pieces)
        return list(zip(chunk.steps, batches, strict=True))

    def _release(self, chunk: _Chunk[P]) -> None:
        self._planned.popleft()
        self._is_under_way = True
        self._planned_pieces -= chunk.pieces.count
        for group in chunk.groups:
            self._needs[group] -= 1
            if not self._needs[group]:
                del self._needs[group]
            if group in self._held:
                self._held.move_to_end(group)
        self._may_read.notify_all()
        self._may_plan.notify()


# A daemon thread that is inside Arrow when the interpreter goes away may crash it.
_running: weakref.WeakSet[_Pipeline[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pipeline in list(_running):
        pipeline.close()
