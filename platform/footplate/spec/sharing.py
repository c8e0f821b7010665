"""
Which numbers of workers can share the samples of a step equally; pure.

A step takes ``batch_size`` samples for each rank of the full number of workers, and takes the
same ones with fewer. A mean over equal shares, averaged over the ranks, is the mean over the step:
so the number of workers changes no loss, no order and no learning rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import TYPE_CHECKING

from footplate.errors import Problem
from footplate.spec.lines import line_of

if TYPE_CHECKING:
    from footplate.spec.model import Job

__all__ = ["sharing_problems", "usable_counts"]


def usable_counts(fewest: int, full: int, *, batch_size: int) -> tuple[int, ...]:
    """
    The numbers of worker pods that share a step equally, ascending.

    Args:
        fewest: The least that is wanted.
        full: The most; it is always one of them.
        batch_size: Samples of a rank when all are there.
    """
    # Every pod has as many ranks, so only pods count.
    return tuple(pods for pods in range(fewest, full + 1) if batch_size * full % pods == 0)


def sharing_problems(job: Job, lines: Mapping[tuple[str, ...], int]) -> tuple[Problem, ...]:
    """
    Why a job can't do with fewer workers, although it says that it can.

    Args:
        lines: Where the keys stand; may be empty.
    """
    if not job.workers.is_elastic:
        return ()
    return tuple(
        Problem(where, what, line_of(lines, tuple(where.split("."))))
        for where, what in _problems(job)
    )


def _problems(job: Job) -> Iterator[tuple[str, str]]:
    if job.command is not None:
        yield (
            "workers.min",
            "a script with a trainer of its own shares its samples itself; say count, and let "
            "its ScalingConfig say with how few ranks it can do",
        )
    if (dataset := job.data.get("train")) is None:
        return
    if dataset.last == "keep":
        yield (
            "data.train.last",
            "'keep' can't be with workers.min: the rest of an epoch would be shared unequally, "
            "and by each number of workers in another way; say 'drop' or 'pad'",
        )
    fewest, full = job.workers.fewest, job.workers.count
    if len(usable_counts(fewest, full, batch_size=dataset.batch_size)) == 1:
        yield "workers.min", _unusable(fewest, full, dataset.batch_size)


def _unusable(fewest: int, full: int, batch_size: int) -> str:
    which = f"{fewest} workers cannot" if fewest == full - 1 else f"none of {fewest} to {full - 1}"
    verb = "" if fewest == full - 1 else " workers can"
    unit = fewest // gcd(fewest, full)
    return (
        f"{which}{verb} share equally what {full} of them take in a step; "
        f"data.train.batch_size = {-(-batch_size // unit) * unit} would let {fewest} do so"
    )
