"""
Which batch comes when: pure arithmetic on one integer.

A *position* is the number of samples of all epochs that are done with: ``epoch * rows + offset``.
It knows nothing of ranks, so a run can go on with another number of them. Every order has as many
samples in each epoch, packed and mixed ones too, so that this needs no data.

An incomplete last batch of an epoch is, on every rank alike,

- dropped: its samples are not trained on in this epoch;
- padded to a whole one from the start of the epoch's order;
- kept: shared out so that ranks differ by at most one sample. Only where fewer samples remain
  than there are ranks, it is padded to one for each, because every rank makes every step.

Where some of the ranks are missing, the steps stay what they are, and the others take more of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from footplate.spec import Job

__all__ = ["EvaluationPlan", "Schedule", "Span", "too_few_rows", "training_schedule"]


@dataclass(frozen=True, slots=True)
class Span:
    """
    The samples of one step, over all ranks.

    Attributes:
        epoch: From 0.
        start: First position in the epoch's order.
        stop: One past the last; if it exceeds the epoch, the step goes on from its start.
        position_after: The position once this step is done.
        world_size: Ranks that share the samples.
    """

    epoch: int
    start: int
    stop: int
    position_after: int
    world_size: int = 1

    def __len__(self) -> int:
        """Samples of the step, over all ranks."""
        return self.stop - self.start

    def share(self, rank: int) -> tuple[int, int]:
        """Start and stop of a rank's samples: equally many, but for one more on the first."""
        each, more = divmod(len(self), self.world_size)
        start = self.start + rank * each + min(rank, more)
        return start, start + each + (rank < more)


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """
    All training steps of a run.

    Attributes:
        rows: Samples of an epoch.
        batch_size: Samples a rank takes for a step, when all ranks are there.
        world_size: Ranks, when all are there.
        present: Ranks that are there and share each step; None if none is missing.
        last: What becomes of an incomplete last batch of an epoch.
        epochs: Passes over the data, or None.
        max_steps: Optimizer steps, or None; whichever comes first.
    """

    rows: int
    batch_size: int
    world_size: int
    last: Literal["drop", "pad", "keep"] = "drop"
    epochs: int | None = None
    max_steps: int | None = None
    present: int | None = None

    @property
    def global_batch(self) -> int:
        """Samples of a whole step, over all ranks."""
        return self.batch_size * self.world_size

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a whole epoch."""
        return self._steps_from(0)

    def total_steps(self, *, step: int = 0, position: int = 0) -> int:
        """
        The number of the last step, seen from ``step`` steps done at ``position``.

        If not even an epoch has a step there is none at all, however many are asked for.
        """
        if not self.steps_per_epoch:
            return step
        limits = []
        if self.epochs is not None:
            epoch, offset = divmod(position, self.rows)
            whole = max(self.epochs - epoch - 1, 0) * self.steps_per_epoch
            begun = self._steps_from(offset) if epoch < self.epochs else 0
            limits.append(step + begun + whole)
        if self.max_steps is not None:
            limits.append(max(self.max_steps, step))
        return min(limits)

    def spans(self, *, step: int = 0, position: int = 0) -> Iterator[Span]:
        """The steps that remain, in order."""
        for _ in range(self.total_steps(step=step, position=position) - step):
            span = self._next(position)
            yield span
            position = span.position_after

    def _steps_from(self, offset: int) -> int:
        remaining = self.rows - offset
        if self.last == "drop":
            return remaining // self.global_batch
        return -(-remaining // self.global_batch)

    def _next(self, position: int) -> Span:
        epoch, start = divmod(position, self.rows)
        if not self._steps_from(start):
            epoch, start = epoch + 1, 0
        stop = start + self.global_batch
        if self.last == "keep" and stop > self.rows:
            stop = max(self.rows, start + self.world_size)
        done = epoch * self.rows + stop
        if stop >= self.rows or not self._steps_from(stop):
            done = (epoch + 1) * self.rows
        return Span(epoch, start, stop, done, self.present or self.world_size)


def training_schedule(job: Job, rows: int, *, world_size: int) -> Schedule:
    """
    The schedule of a job over so many rows of training data.

    Args:
        world_size: Ranks that share the steps; what these are, the job says.
    """
    assert job.limits is not None, "a job with an entrypoint says when training ends"
    dataset = job.data["train"]
    return Schedule(
        rows=rows,
        batch_size=dataset.batch_size,
        world_size=job.workers.world_size,
        present=world_size,
        last=dataset.last,
        epochs=job.limits.epochs,
        max_steps=job.limits.max_steps,
    )


def too_few_rows(schedule: Schedule, name: str) -> str | None:
    """
    Why nothing would be trained, or None if an epoch has a step.

    Args:
        name: Of the data set, for the message.
    """
    if schedule.steps_per_epoch:
        return None
    return (
        f"{schedule.batch_size} samples on each of {schedule.world_size} ranks are "
        f"{schedule.global_batch} a step, and {name} has only {schedule.rows} rows: "
        f"an epoch would have no step; lower it, use fewer ranks, or say last = 'keep' or 'pad'"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationPlan:
    """
    One pass over a data set in which every sample counts exactly once.

    Every rank is called equally often, so that a collective inside the model can't wait for
    ever: where batches run out, a batch is repeated with weight 0.
    """

    rows: int
    batch_size: int
    world_size: int

    def batches(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """Start, stop and weight (samples that count) of each of a rank's batches."""
        count = -(-self.rows // self.batch_size)
        for first in range(0, count, self.world_size):
            index = first + rank
            start = (index % count) * self.batch_size
            stop = min(start + self.batch_size, self.rows)
            yield start, stop, stop - start if index < count else 0
