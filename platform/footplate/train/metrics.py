"""
Metrics of many steps, reduced over ranks at once.

``ctx.step`` only keeps what it is given: no transfer from the GPU, no message, no file. Every
half second or so all ranks exchange what they kept, at a step that they agreed on before, and
with it whatever else they have to tell each other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch.distributed.tensor import DTensor

from footplate.errors import NonFiniteLossError, UserCodeError
from footplate.tracking import MetricPoint
from footplate.train.group import RankGroup

__all__ = ["Exchange", "MetricBuffer", "Scalar", "over_ranks", "to_floats"]

W = TypeVar("W")

Scalar = float | torch.Tensor

_FLUSH_INTERVAL_S = 0.5
# Steps may become much slower, and until they are done nothing is heard of the other ranks.
_MOST_STEPS = 200
_GUARDED = "loss"


@dataclass(frozen=True, slots=True)
class Exchange(Generic[W]):
    """
    What all ranks know after an exchange.

    Attributes:
        points: What the ranks gave for each step since the one before, reduced; oldest first.
        words: What else each rank said, in rank order.
        failure: A loss was not finite; the points end before that step.
    """

    points: list[MetricPoint]
    words: list[W]
    failure: NonFiniteLossError | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    step: int
    time_ms: int
    metrics: Mapping[str, Any]


class MetricBuffer:
    """
    The metrics of steps that are not exchanged yet.

    Args:
        group: The ranks; all of them exchange at the same steps.
        greatest: Metrics of which the greatest of the ranks counts, not the average.
        clock: Seconds, for how often.
        now: Seconds since the epoch, for when a step was made.
    """

    def __init__(
        self,
        group: RankGroup,
        *,
        greatest: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._group = group
        self._greatest = greatest
        self._clock = clock
        self._now = now
        self._kept: list[_Kept] = []
        self._exchange_after = 1
        self._exchanged_at = clock()
        self._exchange_s = _FLUSH_INTERVAL_S

    def append(self, step: int, metrics: Mapping[str, Scalar]) -> None:
        """
        Keep the metrics of a step; tensors stay on their device.

        Raises:
            UserCodeError: If one is not a single number.
        """
        detached = {
            name: _snapshot(name, value) if isinstance(value, torch.Tensor) else float(value)
            for name, value in metrics.items()
        }
        self._kept.append(_Kept(step, int(self._now() * 1000), detached))

    @property
    def is_due(self) -> bool:
        """Whether this is a step that the ranks agreed to exchange at."""
        return len(self._kept) >= self._exchange_after

    @property
    def exchange_s(self) -> float:
        """About how long it is from one exchange to the next."""
        return self._exchange_s

    def exchange(self, word: W) -> Exchange[W]:
        """
        Reduce what all ranks kept. Every rank calls this at the same step.

        Args:
            word: What else this rank has to say.

        Raises:
            UserCodeError: If the ranks did not give the same metrics for the same steps.
        """
        times = [kept.time_ms for kept in self._kept]
        gathered = self._group.gather((_rows(self._kept), word, self._next_steps()))
        self._kept = []
        *_, self._exchange_after = gathered[0]
        by_rank = [rows for rows, *_ in gathered]
        words = [word for _, word, _ in gathered]
        _check_same_metrics(by_rank)
        points: list[MetricPoint] = []
        for time_ms, *rows in zip(times, *by_rank, strict=True):
            if (failure := _non_finite(rows)) is not None:
                return Exchange(points, words, failure)
            step = rows[0][0]
            metrics = over_ranks(rows, self._greatest)
            points.append(MetricPoint(step=step, time_ms=time_ms, metrics=metrics))
        return Exchange(points, words)

    def _next_steps(self) -> int:
        """As many steps as fit into the interval, from how long the last ones took."""
        now = self._clock()
        elapsed = max(now - self._exchanged_at, 1e-6)
        self._exchanged_at = now
        self._exchange_s = max(elapsed, _FLUSH_INTERVAL_S)
        fitting = int(_FLUSH_INTERVAL_S * len(self._kept) / elapsed)
        # A few fast ones say little about those that follow.
        return min(max(fitting, 1), 2 * len(self._kept) + 1, _MOST_STEPS)


_Row = tuple[int, dict[str, float]]


def over_ranks(rows: Sequence[_Row], greatest: Collection[str] = ()) -> dict[str, float]:
    """
    The metrics of one step: averages, but for those of which the greatest counts.

    Summed in rank order in double precision, so the result does not depend on how many steps
    are exchanged together.
    """

    def of_all(name: str) -> float:
        values = [metrics[name] for _, metrics in rows]
        return max(values) if name in greatest else sum(values) / len(values)

    return {name: of_all(name) for name in rows[0][1]}


def _non_finite(rows: Sequence[_Row]) -> NonFiniteLossError | None:
    for rank, (step, metrics) in enumerate(rows):
        loss = metrics.get(_GUARDED, 0.0)
        if not math.isfinite(loss):
            return NonFiniteLossError(
                f"{_GUARDED} is {loss} at step {step} on rank {rank}",
                "Usual causes: a learning rate too high, a division by zero, bad samples. "
                "What was saved before is kept; with other parameters it will be a new run.",
            )
    return None


def to_floats(values: Sequence[Any]) -> list[float]:
    """Python floats of numbers and one-element tensors, with one transfer for each device."""
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for value in values:
        if isinstance(value, torch.Tensor):
            by_device.setdefault(value.device, []).append(value.double().reshape(()))
    moved = {device: iter(torch.stack(some).tolist()) for device, some in by_device.items()}
    return [
        next(moved[value.device]) if isinstance(value, torch.Tensor) else float(value)
        for value in values
    ]


def _snapshot(name: str, value: torch.Tensor) -> torch.Tensor:
    """A copy: the user may go on adding to the tensor before it is exchanged."""
    if value.numel() != 1:
        raise UserCodeError(
            f"the metric {name!r} has shape {tuple(value.shape)}; a metric is a single number",
            "Give its mean, for example.",
        )
    value = value.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value.clone()


def _rows(kept: Sequence[_Kept]) -> list[_Row]:
    floats = iter(to_floats([value for step in kept for value in step.metrics.values()]))
    return [(step.step, {name: next(floats) for name in step.metrics}) for step in kept]


def _check_same_metrics(by_rank: Sequence[Sequence[_Row]]) -> None:
    for rank, rows in enumerate(by_rank):
        if len(rows) != len(by_rank[0]):
            raise UserCodeError(
                f"rank 0 made {len(by_rank[0])} steps since the last exchange "
                f"and rank {rank} made {len(rows)}",
                "Leave the loop at the same step on every rank.",
            )
        for (step, expected), (_, found) in zip(by_rank[0], rows, strict=True):
            if expected.keys() != found.keys():
                raise UserCodeError(
                    f"at step {step} rank 0 gave the metrics {sorted(expected)} "
                    f"and rank {rank} gave {sorted(found)}",
                    "Give ctx.step the same metrics on every rank.",
                )
