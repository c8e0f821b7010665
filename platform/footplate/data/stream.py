"""
The stream of batches that feeds one rank.

The plan (which samples, in which order, for whom) is arithmetic and known beforehand. There are
two ways to carry what it names, and both deliver the same samples in the same order. Ray Data's
tasks carry the rows where the user's functions are to be applied to them, on whichever CPUs of
the cluster are free. Otherwise every rank gathers its rows itself, ahead of need: to send them
through shared memory would cost more than to read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from footplate.data.columns import Columns
from footplate.data.gather import LEAST_AHEAD_BYTES, gathered
from footplate.data.order import take_around
from footplate.data.plan import Portions, Range
from footplate.data.ray_rows import carried_batches
from footplate.data.schedule import EvaluationPlan, Schedule, Span
from footplate.data.source import DataSource, OpenedSource, opened

__all__ = ["evaluation_batches", "training_batches"]

P = TypeVar("P")  # one step of a plan

_PORTIONS = Portions()


def training_batches(
    source: DataSource,
    schedule: Schedule,
    *,
    rank: int,
    step: int,
    position: int,
    portions: Portions = _PORTIONS,
) -> Iterator[tuple[Span, Columns]]:
    """
    The batches of one rank from ``step`` steps done at ``position`` to the end of the run.

    Every rank must be given the same schedule, step and position.

    Raises:
        DataError: If the data can't be read or what arrives is not what was planned.
        StoreError: If the store fails or refuses.
        UserCodeError: If a function that is applied to the samples fails.
        WorkerLostError: If Ray lost what was read, or who read it.
    """
    spans = schedule.spans(step=step, position=position)
    plan = ((span, Range(span.epoch, *span.share(rank))) for span in spans)
    return _batches(source, plan, portions)


def evaluation_batches(
    source: DataSource,
    *,
    batch_size: int,
    world_size: int,
    rank: int,
    portions: Portions = _PORTIONS,
) -> Iterator[tuple[int, Columns]]:
    """
    One pass over a data set in the order of its manifest; of a mixture, part after part.

    Returns:
        The weight of each batch (the samples in it that count) and the batch.

    Raises:
        FootplateError: As for training.
    """
    source = replace(source, shuffle=False, weights=())
    evaluation = EvaluationPlan(
        rows=opened(source).order.rows, batch_size=batch_size, world_size=world_size
    )
    batches = evaluation.batches(rank)
    plan = ((weight, Range(0, start, stop)) for start, stop, weight in batches)
    return _batches(source, plan, portions)


def _batches(
    source: DataSource, plan: Iterator[tuple[P, Range]], portions: Portions
) -> Iterator[tuple[P, Columns]]:
    if source.transform is not None:
        return carried_batches(source, plan, portions)
    data = opened(source)
    selected = ((step, take_around(data.order, *where)) for step, where in plan)
    return gathered(
        selected,
        data.reader,
        pack=source.pack,
        bucket=source.bucket,
        ahead_bytes=_ahead_bytes(source, data),
    )


def _ahead_bytes(source: DataSource, data: OpenedSource) -> int:
    """
    Row groups in memory: all that are shuffled together, and all that come after these.

    A pool is needed whole until its end, and the next one from its beginning.
    """
    pool = source.pool if source.shuffle else 1
    # Of a mixture each part has a pool of its own.
    pools = [min(2 * pool, len(manifest.group_rows)) for manifest in data.manifests]
    groups = sum(pools) if source.weights else max(pools)
    return max(groups * data.reader.largest, LEAST_AHEAD_BYTES)
