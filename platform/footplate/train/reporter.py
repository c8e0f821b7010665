"""What rank 0 tells the outside: the metric log and the progress record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from footplate.errors import StoreError
from footplate.store import AttemptPaths, Notice, Progress, SaveInterval, StopRequest, Store
from footplate.tracking import MetricLog, MetricPoint
from footplate.train.outbox import Outbox

__all__ = ["CHECKPOINT_STALL", "DATA_WAIT", "Reporter"]

CHECKPOINT_STALL = "time/checkpoint_stall_s"
"""The metric of every step with a save that says for how long that held up training."""

DATA_WAIT = "time/data_wait_s"
"""The metric of every step that says how long it waited for a batch: all wait for the slowest."""

# The progress record is for eyes, the metric log for MLflow; a kill loses nothing of the log
# that is not repeated after it, because it is also written with every checkpoint.
_PROGRESS_INTERVAL_S = 1.0
_LOG_INTERVAL_S = 10.0
# Weight of the newest interval in the moving average of the speed.
_SPEED_SMOOTHING = 0.3


class Reporter:
    """
    Rank 0's mouth.

    But for :meth:`write_log` nothing raises or waits for the store: what can't be told now is
    told with the next report.

    Args:
        samples_per_step: Over all ranks.
        total_steps: Of the run.
        started_at_step: Where this attempt took up.
        checkpoint: What it took up, or None.
        metrics: The newest so far.
        detail: What is to be shown with all progress; may be empty.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        attempt: AttemptPaths,
        *,
        samples_per_step: int,
        total_steps: int,
        started_at_step: int,
        checkpoint: str | None,
        metrics: Mapping[str, float],
        detail: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._attempt = attempt
        self._detail = detail
        self._log = MetricLog(store, attempt)
        self._outbox = Outbox(store, attempt, self._flush)
        self._samples_per_step = samples_per_step
        self._clock = clock
        self._progress = Progress(
            stage="training",
            detail=detail,
            time=clock(),
            step=started_at_step,
            total_steps=total_steps,
            started_at_step=started_at_step,
            checkpoint=checkpoint,
            metrics=dict(metrics),
        )
        self._shown = 0.0
        self._seconds_per_step: float | None = None
        self._measured_at: tuple[float, int] | None = None

    @property
    def progress(self) -> Progress:
        """The newest progress, whether or not it is written yet."""
        return self._progress

    def steps(self, points: Sequence[MetricPoint], *, epoch: int) -> None:
        """Report finished steps, oldest first."""
        for point in points:
            self._log.append(point)
        newest = points[-1]
        self._measure(newest.step)
        self._update(
            data_wait=self._data_wait(points),
            step=newest.step,
            epoch=epoch,
            stage="training",
            metrics={**self._progress.metrics, **newest.metrics},
        )
        if self._log.waiting_s > _LOG_INTERVAL_S:
            self._outbox.flush()

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report the result of an evaluation."""
        self._log.append(
            MetricPoint(step=step, time_ms=int(self._clock() * 1000), metrics=dict(metrics))
        )
        self._update(metrics={**self._progress.metrics, **metrics})

    def stage(self, stage: Literal["training", "evaluating", "saving", "finishing"]) -> None:
        """Say what is being done now."""
        self._update(stage=stage)

    def stall(self, step: int, stall_s: float) -> None:
        """Report for how long a save held up training."""
        self.evaluation(step, {CHECKPOINT_STALL: stall_s})

    def checkpoint(self, name: str) -> None:
        """Report a committed checkpoint."""
        self._update(checkpoint=name, detail=self._detail)

    def trouble(self, text: str) -> None:
        """Show what is wrong, until a checkpoint says that it is over."""
        self._update(detail=text)

    def interval(self, interval: SaveInterval) -> None:
        """Leave a record of how often this attempt saves."""
        self._outbox.write(self._attempt.interval, interval)
        self._update(save_every_s=interval.interval_s)

    def write_log(self) -> None:
        """
        Write what the metric log still holds: no counted step may lack its metrics.

        Raises:
            StoreError: If it can't be written now; it is kept for the next time.
        """
        self._log.flush()

    def close(self) -> None:
        """Write what is left to tell, if that is possible in some seconds; the last call."""
        self._outbox.show(self._progress)
        self._outbox.flush()
        self._outbox.close()

    @property
    def stop(self) -> StopRequest | None:
        """What somebody who wants this attempt to save and end has said, as of a second ago."""
        return self._outbox.stop

    @property
    def notice(self) -> Notice | None:
        """What the driver has said about machines that go away, as of a second ago."""
        return self._outbox.notice

    def _flush(self) -> None:
        # If the store stays broken, the next checkpoint fails for it and says so.
        with suppress(StoreError):
            self.write_log()

    def _measure(self, step: int) -> None:
        now = self._clock()
        if self._measured_at is not None:
            then, step_then = self._measured_at
            if step > step_then and now > then:
                newest = (now - then) / (step - step_then)
                before = self._seconds_per_step or newest
                self._seconds_per_step = before + _SPEED_SMOOTHING * (newest - before)
        self._measured_at = (now, step)

    def _data_wait(self, points: Sequence[MetricPoint]) -> float | None:
        """The share of the newest steps' time in which they waited for data."""
        if not self._seconds_per_step:
            return None
        waited = sum(point.metrics.get(DATA_WAIT, 0.0) for point in points) / len(points)
        return min(waited / self._seconds_per_step, 1.0)

    def _update(self, **changes: object) -> None:
        """Change the progress; show it if the last one is old enough or the stage is new."""
        now = self._clock()
        new_stage = changes.get("stage", self._progress.stage) != self._progress.stage
        self._progress = self._progress.model_copy(update={**changes, **self._speed(), "time": now})
        # A clock that was set back is no reason to show nothing.
        if new_stage or not 0 <= now - self._shown < _PROGRESS_INTERVAL_S:
            self._shown = now
            self._outbox.show(self._progress)

    def _speed(self) -> dict[str, float]:
        if not self._seconds_per_step:
            return {}
        remaining = self._progress.total_steps - self._progress.step
        return {
            "samples_per_s": self._samples_per_step / self._seconds_per_step,
            "eta_s": remaining * self._seconds_per_step,
        }
