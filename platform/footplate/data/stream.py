"""
The stream of batches that feeds one rank, carried by Ray Data.

The plan (which samples, in which order, for whom) is arithmetic and known beforehand. A Ray Data
task gathers the samples of several consecutive steps of one rank from Parquet; Ray Data runs the
tasks ahead of need, bounds what waits in memory and hands the blocks over in order. What arrives
is compared with the plan, sample by sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow
from ray.data import read_datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.exceptions import RayError, RayTaskError

from footplate.data.columns import Column, decode
from footplate.data.manifest import DataManifest
from footplate.data.order import EpochOrder, Ids
from footplate.data.reader import open_reader
from footplate.data.schedule import EvaluationPlan, Schedule, Span
from footplate.errors import DataError, FootplateError, WorkerLostError

__all__ = ["Columns", "DataSource", "Portions", "evaluation_batches", "training_batches"]

# How much of a CPU Ray counts for a task. Whoever starts the ranks must leave CPUs for them.
_TASK_CPUS = 0.5
# Blocks on their way to a rank while it works on one.
_PREFETCH_BLOCKS = 2
_SAMPLE_COLUMN = "__footplate_sample__"

Columns = dict[str, Column]
P = TypeVar("P")  # one step of a plan


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource:
    """
    Where a data set is read from and in which order.

    Attributes:
        manifest_uri: Absolute file name or URI of the manifest.
        manifest: Its content.
        columns: What to read, or None for all.
        endpoint: Of an S3-compatible server.
        region: Of the bucket.
        seed: Of the job.
        shuffle: False is the order of the manifest.
    """

    manifest_uri: str
    manifest: DataManifest
    columns: tuple[str, ...] | None = None
    endpoint: str | None = None
    region: str | None = None
    seed: int = 0
    shuffle: bool = True

    @property
    def group_rows(self) -> tuple[int, ...]:
        """Rows of each row group, over all files."""
        return tuple(rows for file in self.manifest.files for rows in file.row_groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class Portions:
    """
    How the plan is cut into tasks of Ray Data; changes nothing about what arrives.

    A task should carry enough to hide its own cost (some milliseconds) and little enough that
    the first batch comes soon.

    Attributes:
        task_bytes: Of samples, at most, but for a step's worth.
        task_rows: Samples, likewise.
        tasks: Of one execution: planning more takes longer than starting another.
    """

    task_bytes: int = 8 << 20
    task_rows: int = 8192
    tasks: int = 512


def training_batches(
    source: DataSource,
    schedule: Schedule,
    *,
    rank: int,
    step: int,
    position: int,
    portions: Portions = Portions(),
) -> Iterator[tuple[Span, Columns]]:
    """
    The batches of one rank from ``step`` steps done at ``position`` to the end of the run.

    Every rank must be given the same schedule, step and position.

    Raises:
        DataError: If the data can't be read or what arrives is not what was planned.
        StoreError: If the store fails or refuses.
        WorkerLostError: If Ray lost what was read, or who read it.
    """
    order = _Orders(source)

    def samples(span: Span) -> Ids:
        start = span.start + rank * schedule.batch_size
        return order.take(span.epoch, start, start + schedule.batch_size)

    spans = schedule.spans(step=step, position=position)
    return _stream(source, spans, samples, portions)


def evaluation_batches(
    source: DataSource, plan: EvaluationPlan, *, rank: int, portions: Portions = Portions()
) -> Iterator[tuple[int, Columns]]:
    """
    One pass over a data set in the order of its manifest.

    Returns:
        The weight of each batch (the samples in it that count) and the batch.

    Raises:
        FootplateError: As for training.
    """
    planned = _stream(
        source,
        plan.batches(rank),
        lambda batch: np.arange(batch[0], batch[1], dtype=np.int64),
        portions,
    )
    return ((weight, batch) for (_, _, weight), batch in planned)


class _Orders:
    """The orders of the epochs, of which one or two are in use at a time."""

    def __init__(self, source: DataSource) -> None:
        self._source = source
        self._orders: dict[int, EpochOrder] = {}

    def take(self, epoch: int, start: int, stop: int) -> Ids:
        order = self._orders.get(epoch)
        if order is None:
            source = self._source
            order = EpochOrder(
                source.group_rows, seed=source.seed, epoch=epoch, shuffle=source.shuffle
            )
            self._orders = {epoch: order}
        # A padded batch goes on with the start of the same epoch's order, again and again where
        # the batch is larger than the data set.
        rows = len(order)
        parts: list[Ids] = []
        while start < stop:
            begin = start % rows
            end = min(begin + stop - start, rows)
            parts.append(order.take(begin, end))
            start += end - begin
        return np.concatenate(parts)


def _stream(
    source: DataSource, plan: Iterable[P], samples: Callable[[P], Ids], portions: Portions
) -> Iterator[tuple[P, Columns]]:
    """Pair each planned step with its batch."""
    steps = iter(plan)
    while tasks := list(itertools.islice(_tasks(source, steps, samples, portions), portions.tasks)):
        blocks = _blocks(source, [ids for _, ids in tasks])
        planned = ((step, ids) for task in tasks for step, ids in zip(*task, strict=True))
        for step, ids, rows in _rows_of_steps(planned, blocks):
            _check(source, rows, ids)
            yield step, decode(rows.drop_columns([_SAMPLE_COLUMN]), source.manifest)


def _rows_of_steps(
    planned: Iterable[tuple[P, Ids]], blocks: Iterator[pyarrow.Table]
) -> Iterator[tuple[P, Ids, pyarrow.Table]]:
    """
    Cut what arrives into steps.

    Ray Data may split what a task returns into several blocks, if it is large.
    """
    arrived = pyarrow.table({_SAMPLE_COLUMN: pyarrow.array([], pyarrow.int64())})
    for step, ids in planned:
        while arrived.num_rows < len(ids) and (block := next(blocks, None)) is not None:
            arrived = pyarrow.concat_tables([arrived, block]) if arrived.num_rows else block
        yield step, ids, arrived.slice(0, len(ids))
        arrived = arrived.slice(len(ids))
    # Lets the execution come to its end.
    next(blocks, None)


def _tasks(
    source: DataSource, steps: Iterator[P], samples: Callable[[P], Ids], portions: Portions
) -> Iterator[tuple[list[P], list[Ids]]]:
    """Cut the plan into runs of steps that one task gathers."""
    rows_per_task = portions.task_bytes // source.manifest.sample_size
    rows_per_task = min(max(rows_per_task, 1), portions.task_rows)
    planned: list[P] = []
    ids: list[Ids] = []
    rows = 0
    for step in steps:
        planned.append(step)
        ids.append(samples(step))
        rows += len(ids[-1])
        if rows >= rows_per_task:
            yield planned, ids
            planned, ids, rows = [], [], 0
    if planned:
        yield planned, ids


def _blocks(source: DataSource, tasks: Sequence[list[Ids]]) -> Iterator[pyarrow.Table]:
    """The gathered samples of each task, in order, through one Ray Data execution."""
    dataset = read_datasource(
        _Gather(source, [np.concatenate(ids) for ids in tasks]),
        num_cpus=_TASK_CPUS,
        override_num_blocks=len(tasks),
    )
    # The context is this data set's own copy: the user's other data sets are left alone.
    dataset.context.execution_options.preserve_order = True
    dataset.context.enable_progress_bars = False
    dataset.context.execution_options.verbose_progress = False
    try:
        yield from dataset.iter_batches(
            batch_size=None, batch_format="pyarrow", prefetch_batches=_PREFETCH_BLOCKS
        )
    except Exception as error:  # the type that Ray Data raises differs by where a task failed
        raise _own_error(error) from error


class _Gather(Datasource):  # type: ignore[misc]  # Ray ships no types that hold under strict
    """A Ray Data source of which each read task gathers the samples it is told to."""

    def __init__(self, source: DataSource, tasks: Sequence[Ids]) -> None:
        super().__init__()
        self._source = source
        self._tasks = tasks

    def estimate_inmemory_data_size(self) -> int | None:
        return sum(map(len, self._tasks)) * self._source.manifest.sample_size

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        source = self._source
        reader_arguments = (source.manifest_uri, source.columns, source.endpoint, source.region)
        return [_read_task(ids, reader_arguments) for ids in self._tasks]


def _read_task(ids: Ids, reader_arguments: tuple[Any, ...]) -> ReadTask:
    # The closure is sent to another process: it holds the plan and the address of the data.
    def gather() -> list[pyarrow.Table]:
        table = open_reader(*reader_arguments).take(ids)
        return [table.append_column(_SAMPLE_COLUMN, pyarrow.array(ids))]

    metadata = BlockMetadata(num_rows=len(ids), size_bytes=None, input_files=None, exec_stats=None)
    return ReadTask(gather, metadata)


def _check(source: DataSource, block: pyarrow.Table, planned: Ids) -> None:
    arrived = block.column(_SAMPLE_COLUMN).to_numpy()
    if not np.array_equal(arrived, planned):
        raise DataError(
            f"data set {source.manifest.name} arrived out of order: "
            f"{len(arrived)} samples, not the {len(planned)} planned, or not these",
        )


def _own_error(error: BaseException) -> FootplateError:
    """The error of a task, found inside what Ray wraps around it."""
    chain = list(_causes(error))
    for inner in chain:
        # What Ray makes of an error is of both types, and says everything twice.
        if isinstance(inner, FootplateError) and not isinstance(inner, RayError):
            return inner
    for inner in chain:
        if isinstance(inner, RayError) and not isinstance(inner, RayTaskError):
            return WorkerLostError(
                f"a process that reads the data was lost: {_reason(inner)}",
                "Usual causes: killed for memory, or a node went away. "
                "Run again: training goes on from the last checkpoint.",
            )
    return DataError(f"reading the data failed: {_reason(chain[-1])}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        following = getattr(following, "cause", None) or following.__cause__


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
