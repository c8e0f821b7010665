"""When a rank saves, and when it leaves: what stands between the training loop and its saver."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from footplate.checkpoints import CheckpointManifest
from footplate.checkpoints.interval import SaveCost
from footplate.checkpoints.retention import Retention, unknown_metric
from footplate.errors import FootplateError, PreemptedError
from footplate.spec import Job
from footplate.store import RunPaths, Store
from footplate.train.group import RankGroup
from footplate.train.orders import Departure, Order, Reason, stop_order
from footplate.train.pace import Pace
from footplate.train.reliability import Reliability
from footplate.train.reporter import Reporter
from footplate.train.save_timer import SaveTimer
from footplate.train.saver import EndedSave, Saver
from footplate.train.start import Start
from footplate.train.tracked import Tracked

__all__ = ["Checkpointing", "Place", "StopTraining", "Word"]

log = logging.getLogger(__name__)

# For how long the end of a process may wait for the save under way.
_CLOSING_S = 30.0


class StopTraining(BaseException):
    """
    Asked to stop, and saved: leaves the training function, past any ``except Exception``.

    Args:
        error: What the attempt ends with, if it is not that it was stopped.
    """

    def __init__(self, error: FootplateError | None = None) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """
    Where training stands.

    Attributes:
        step: Optimizer steps done.
        position: Samples done with.
        epoch: Of the last step.
        skipped_rows: That others have stood in for so far, by row group, by data set.
    """

    step: int
    position: int
    epoch: int
    skipped_rows: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Word:
    """
    What a rank says to the others now and then.

    Attributes:
        order: What all are to do; counts if it is rank 0's.
        saves_ended: How many of its saves are over.
    """

    order: Order | None
    saves_ended: int


class Checkpointing:
    """
    Saves at the steps that the loop names, by the clock, and when training is to end.

    The ranks tell each other their :class:`Word`, all at the same step, and follow what rank 0
    has ordered at the end of that step.

    Args:
        tracked: What is saved.
        reporter: Of rank 0.
        start: What this attempt begins with, or None.
        reliability: What is known of the attempts before.
        nodes: That ranks are on.
    """

    def __init__(
        self,
        job: Job,
        group: RankGroup,
        store: Store,
        run: RunPaths,
        tracked: Tracked,
        reporter: Reporter | None,
        *,
        attempt: int,
        start: Start | None,
        reliability: Reliability,
        nodes: Collection[str],
    ) -> None:
        self._job = job
        self._group = group
        self._attempt = attempt
        self._tracked = tracked
        self._reporter = reporter
        self._nodes = nodes
        own = start if start and start.is_own else None
        self._checkpoint = str(own.manifest.name) if own else None
        self._saved_step = own.step if own else None
        self._begun_step: int | None = None
        self._saver = Saver(
            store,
            run,
            group,
            tracked,
            Retention(store, run, attempt=attempt, keep=job.checkpoint.keep),
            has_saved=own is not None,
            before_commit=reporter.write_log if reporter else _nothing,
            on_end=self._ended,
        )
        self._timer = SaveTimer(job.checkpoint.every, reliability)
        self._pace = Pace()
        self._departure = Departure()
        self._order: Order | None = None
        self._slow_step: int | None = None
        self._checked_metric = False

    @property
    def newest(self) -> str | None:
        """Name of the newest checkpoint of this run that counts."""
        return self._checkpoint

    @property
    def is_failing(self) -> bool:
        """Whether the last save failed: then the clock says when to try again."""
        return self._saver.is_failing

    def step_made(self) -> None:
        """Take note of a step."""
        self._timer.trains()
        self._pace.step(is_writing=self._saver.is_busy)

    def interrupted(self) -> None:
        """Take note that the step under way is held up by something else."""
        self._pace.interrupt()

    def word(self, *, exchange_s: float) -> Word:
        """
        What this rank says now.

        Args:
            exchange_s: How long it is until it can say something again.
        """
        order = self._wanted(exchange_s) if self._group.is_first else None
        return Word(order, self._saver.ended)

    def hear(self, words: Sequence[Word]) -> None:
        """
        Take note of what the ranks have said, in rank order.

        Raises:
            FootplateError: On every rank, if a save has failed that training ends for.
        """
        order = words[0].order
        if self._order is None or (order is not None and order.ends):
            self._order = order
        self._saver.take_up(min(word.saves_ended for word in words))

    def follow(self, place: Place, *, is_due: bool) -> None:
        """
        Do at the end of a step what has been ordered, and save if that is due.

        Raises:
            StopTraining: If training ends here.
        """
        order, self._order = self._order, None
        if order is not None and order.ends:
            self._leave(order, place)
        # By now it may be known that the last save failed: then the clock says when to try again.
        if order is not None or (is_due and not self._saver.is_failing):
            self._save("interval" if order is None else order.reason, place)

    def finish(self, place: Place, reason: Reason = "end") -> None:
        """Save, unless this step is saved already, and wait until it is."""
        if self._reporter:
            self._reporter.stage("saving")
        self._saver.settle()
        if place.step != self._saved_step:
            self._saver.complete(self._manifest(reason, place))

    def close(self) -> None:
        """Let the save under way come to its end, if that is possible in some seconds."""
        self._saver.close(_CLOSING_S)

    def _wanted(self, exchange_s: float) -> Order | None:
        """What rank 0 wants of all."""
        assert self._reporter is not None
        if (request := self._reporter.stop) is not None:
            return stop_order(request)
        return self._departing(exchange_s) or self._timed()

    def _departing(self, exchange_s: float) -> Order | None:
        assert self._reporter is not None
        notice = self._reporter.notice
        deadline = notice.deadline(self._nodes) if notice is not None else None
        if notice is None or deadline is None:
            return None
        return self._departure.order(
            deadline, notice.reason, save_s=self._saver.save_s, exchange_s=exchange_s
        )

    def _timed(self) -> Order | None:
        if self._saver.is_busy:
            if self._timer.is_due(self._saver.seconds_since_begun):
                self._say_that_saving_is_slow()
            return None
        if self._saver.has_news:
            return None  # it may have failed, and then there is a time to try again
        if self._saver.is_failing:
            is_due = self._saver.is_retry_due
        else:
            is_due = self._timer.is_due(self._saver.seconds_since_begun)
        return Order(ends=False, reason="interval") if is_due else None

    def _say_that_saving_is_slow(self) -> None:
        """Once for each save that is not done when the next one is due; the log has the first."""
        if self._reporter is None or self._slow_step == self._begun_step:
            return
        text = (
            f"a save that began {self._saver.seconds_since_begun:.0f} s ago is not done yet, and "
            f"the next one is due (checkpoint.every = {self._job.checkpoint.every})"
        )
        if self._slow_step is None:
            log.warning("%s", text)
        self._slow_step = self._begun_step
        self._reporter.trouble(text)

    def _leave(self, order: Order, place: Place) -> None:
        """Save what is not saved yet, and end training as was ordered."""
        if order.reason != "preemption":
            self.finish(place, order.reason)
            raise StopTraining
        self._save("preemption", place)
        self._saver.settle()
        saved = f"saved up to step {self._saved_step}" if self._saved_step else "not saved"
        left = f"left before machines were taken away ({order.detail}); {saved}"
        raise StopTraining(PreemptedError(left))

    def _save(self, reason: Reason, place: Place) -> None:
        """Begin to save, unless that has been done at this step."""
        if self._begun_step == place.step and not self._saver.is_failing:
            return
        if reason == "interval" and self._saver.is_busy:
            self._say_that_saving_is_slow()
        self._begun_step = place.step
        stall = self._saver.begin(self._manifest(reason, place))
        self._pace.interrupt()
        if self._reporter:
            self._reporter.stall(place.step, stall.total_s)

    def _manifest(self, reason: Reason, place: Place) -> CheckpointManifest:
        return CheckpointManifest(
            step=place.step,
            position=place.position,
            epoch=place.epoch,
            attempt=self._attempt,
            world_size=self._group.world_size,
            written=time.time(),
            metrics=self._reporter.progress.metrics if self._reporter else {},
            tracked=self._tracked.names,
            reason=reason,
            skipped_rows={name: dict(rows) for name, rows in place.skipped_rows.items()},
        )

    def _ended(self, save: EndedSave) -> None:
        """Take note of a save that is over."""
        if save.error is None:
            self._saved_step, self._checkpoint = save.manifest.step, str(save.manifest.name)
        if self._reporter is not None:
            self._tell(self._reporter, save)

    def _tell(self, reporter: Reporter, save: EndedSave) -> None:
        if save.error is not None:
            text = (
                f"the state after step {save.manifest.step} could not be saved, {save.outlook}: "
                f"{save.error}"
            )
            log.warning("%s", text)
            reporter.trouble(text)
            return
        reporter.checkpoint(str(save.manifest.name))
        copied_s = save.stall.copied_s
        slowdown_s = self._pace.slowdown * max(save.took_s - copied_s, 0.0)
        cost = SaveCost(stall_s=copied_s, slowdown_s=slowdown_s, save_s=save.took_s)
        if (interval := self._timer.saved(cost)) is not None:
            reporter.interval(interval)
        self._check_metric(save.manifest.metrics)

    def _check_metric(self, metrics: Mapping[str, float]) -> None:
        """Say once, after an evaluation, if the metric that best checkpoints go by is none."""
        of_evaluations = tuple(f"{data}/" for data in self._job.data)
        if self._checked_metric or not any(name.startswith(of_evaluations) for name in metrics):
            return
        self._checked_metric = True
        if (text := unknown_metric(self._job.checkpoint.keep, metrics)) is not None:
            log.warning("%s", text)


def _nothing() -> None:
    """What ranks other than the first report before a commit."""
