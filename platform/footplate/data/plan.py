"""
The plan of a rank: which samples each of its steps takes, cut into portions for Ray Data's tasks.

How large they are changes nothing about what arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from footplate.data.order import Order, take_around
from footplate.data.selection import Selection

__all__ = ["TASK_CPUS", "Portions", "Range", "joined", "portions_of", "selections"]

TASK_CPUS = 0.5
"""What a task that carries samples takes of a CPU, as Ray counts it."""

P = TypeVar("P")  # one step of a plan


class Range(NamedTuple):
    """Consecutive samples of an epoch's order; past its end they go on with its start."""

    epoch: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Portions:
    """
    How a plan is cut.

    Attributes:
        samples: Of a portion, at most, but for a step's worth.
        count: Portions of one Ray Data execution: planning more takes longer than starting
            another.
    """

    samples: int = 16384
    count: int = 512


def portions_of(
    plan: Iterable[tuple[P, Range]], samples: int
) -> Iterator[tuple[list[P], list[Range]]]:
    """
    Consecutive steps of so many samples, or of one step where that has more.

    The first portion is a single step, so that it comes soon; each next one may be twice as many.
    """
    steps: list[P] = []
    ranges: list[Range] = []
    count = 0
    most = 1
    for step, where in plan:
        steps.append(step)
        ranges.append(where)
        count += where.stop - where.start
        if count >= samples or len(steps) >= most:
            yield steps, ranges
            steps, ranges, count = [], [], 0
            most *= 2
    if steps:
        yield steps, ranges


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same samples with as few ranges as possible: those of one rank alone mostly touch."""
    found: list[Range] = []
    for where in ranges:
        if found and (where.epoch, where.start) == (found[-1].epoch, found[-1].stop):
            found[-1] = found[-1]._replace(stop=where.stop)
        else:
            found.append(where)
    return found


def selections(order: Order, ranges: Sequence[Range]) -> list[Selection]:
    """The samples of each range."""
    return [take_around(order, *where) for where in ranges]
