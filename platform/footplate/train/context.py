"""
What a training function sees: :class:`Context`.

A step is complete when the body of the loop has run, everything after ``ctx.step`` included. So
checkpoints are made between two bodies, when the loop asks for its next batch: what is saved is
the state after step n, and going on means body n + 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import Module

from footplate.data.schedule import Span, training_schedule
from footplate.data.source import DataSource, opened, skip_budget
from footplate.data.stream import evaluation_batches, training_batches
from footplate.errors import UserCodeError
from footplate.spec import Cadence, Job
from footplate.store import RunPaths, Store
from footplate.train import randomness
from footplate.train.checkpointing import Checkpointing, Place, StopTraining
from footplate.train.group import RankGroup
from footplate.train.metrics import MetricBuffer, Scalar, to_floats
from footplate.train.parallel import distributed, sharded, unwrapped
from footplate.train.reliability import Reliability, unknown_reliability
from footplate.train.reporter import DATA_WAIT, Reporter
from footplate.train.skipped_rows import SkippedRows
from footplate.train.start import Start
from footplate.train.tracked import Tracked
from footplate.train.transfer import Batch, host_batches, on_device

__all__ = ["Context", "StopTraining"]

_TRAINING_DATA = "train"
_EVENTS = ("evaluate",)


class Context:
    """
    One rank's view of its run; handed to the training function.

    ::

        def train(ctx: Context) -> None:
            model = ctx.prepare(Net())
            optimizer = torch.optim.AdamW(model.parameters(), lr=ctx.params["lr"])
            ctx.track(model=model, optimizer=optimizer)
            for batch in ctx.batches("train"):
                loss = loss_of(model, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                ctx.step(loss=loss)
                if ctx.due("evaluate"):
                    ctx.evaluate(lambda batch: metrics_of(model, batch), data="valid")

    Nothing else is needed to survive a kill.
    """

    def __init__(
        self,
        job: Job,
        group: RankGroup,
        data: Mapping[str, DataSource],
        store: Store,
        run: RunPaths,
        *,
        attempt: int,
        start: Start | None,
        reliability: Reliability | None = None,
        nodes: Collection[str] = (),
    ) -> None:
        self._job = job
        self._group = group
        self._data = data
        self._step = start.step if start else 0
        self._position = start.position if start else 0
        rows = opened(data[_TRAINING_DATA]).order.rows
        self._schedule = training_schedule(job, rows, world_size=group.world_size)
        self._total_steps = self._schedule.total_steps(step=self._step, position=self._position)
        self._reporter = (
            Reporter(
                store,
                run.attempt(attempt),
                samples_per_step=self._schedule.global_batch,
                total_steps=self._total_steps,
                started_at_step=self._step,
                checkpoint=str(start.manifest.name) if start and start.is_own else None,
                metrics=start.manifest.metrics if start and start.everything else {},
                detail=job.workers.shortage(group.world_size),
            )
            if group.is_first
            else None
        )
        self._metrics = MetricBuffer(group, greatest=(DATA_WAIT,))
        before = start.manifest.skipped_rows if start and start.everything else None
        budgets = {name: skip_budget(source) for name, source in data.items() if source.skip_rows}
        self._skipped_rows = SkippedRows(budgets, _TRAINING_DATA, before)
        self._tracked = Tracked(group.rank, start)
        self._checkpointing = Checkpointing(
            job,
            group,
            store,
            run,
            self._tracked,
            self._reporter,
            attempt=attempt,
            start=start,
            reliability=reliability or unknown_reliability(job),
            nodes=nodes,
        )
        self._stream: Iterator[tuple[Span, Batch]] | None = None
        self._next: tuple[Span, Batch] | None = None
        self._waited_s = 0.0
        self._span: Span | None = None
        self._stepped = False
        self._has_stepped = False
        self._in_epochs = False
        self._models: list[Module] = []

    @property
    def params(self) -> Mapping[str, Any]:
        """The user's own hyperparameters: ``[params]`` of the spec."""
        return self._job.params

    @property
    def seed(self) -> int:
        """The seed of the job; Python, NumPy and torch are seeded from it already."""
        return self._job.seed

    @property
    def rank(self) -> int:
        """This process among all, from 0."""
        return self._group.rank

    @property
    def local_rank(self) -> int:
        """This process among those of its node, from 0."""
        return self._group.local_rank

    @property
    def world_size(self) -> int:
        """Training processes there are now."""
        return self._group.world_size

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return self._group.device

    @property
    def step_number(self) -> int:
        """Optimizer steps done since the beginning of the run, earlier attempts included."""
        return self._step

    @property
    def total_steps(self) -> int:
        """The number of the last step of the run."""
        return self._total_steps

    @property
    def epoch(self) -> int:
        """The epoch of the current (or else the next) batch, from 0."""
        return self._span.epoch if self._span else self._position // self._schedule.rows

    def prepare(self, model: Module) -> Module:
        """
        The model on this rank's device, made one of all ranks as ``workers.parallel`` says.

        Make the optimizer afterwards, of the parameters of what is returned.

        Raises:
            UserCodeError: If its parameters are to be shared out and the ranks have made different
                ones.
        """
        if self.world_size == 1 or not any(p.requires_grad for p in model.parameters()):
            model = model.to(self.device)
        elif self._job.workers.parallel == "fsdp":
            model = sharded(model, self._group)
        else:
            model = distributed(model.to(self.device), self.device)
        self._models.append(model)
        return model

    def track(self, **tracked: object) -> None:
        """
        Save these with every checkpoint, and restore them now when the run goes on.

        Args:
            tracked: Models, optimizers, schedulers, scalers, torch generators, or anything
                else with ``state_dict`` and ``load_state_dict``; the same on every rank.

        Raises:
            CheckpointError: If something can't be tracked or the checkpoint does not fit.
        """
        for name, item in tracked.items():
            self._tracked.add(name, item)

    def epochs(self) -> Iterator[int]:
        """
        The epochs that remain, from 0; inside, ``batches`` ends with the epoch.

        A run that goes on in the middle of an epoch begins with the rest of it.
        """
        self._in_epochs = True
        while (upcoming := self._peek()) is not None:
            epoch = upcoming[0].epoch
            yield epoch
            if self._peek() is upcoming:
                raise UserCodeError(
                    f"nothing was taken from ctx.batches in epoch {epoch}",
                    "Inside ctx.epochs() iterate over ctx.batches.",
                )

    def batches(self, data: str = _TRAINING_DATA) -> Iterator[Batch]:
        """
        This rank's batches to the end of the run, from where it stands.

        Yields:
            Column names to tensors on :attr:`device` of shape (N, ...), N being the
            ``batch_size`` of the spec, and more as long as training goes on with fewer workers;
            texts and other bytes to lists of N objects.

        Raises:
            UserCodeError: If the loop goes on without having called :meth:`step`.
            DataError: If the data can't be read.
        """
        if data != _TRAINING_DATA:
            raise UserCodeError(
                f"ctx.batches takes {_TRAINING_DATA!r}, not {data!r}",
                "Other data sets are for ctx.evaluate.",
            )
        if self._span is not None:  # an earlier loop was left
            self._complete_step()
        epoch: int | None = None
        while (upcoming := self._peek()) is not None:
            span, batch = upcoming
            if self._in_epochs and epoch not in (None, span.epoch):
                return
            epoch = span.epoch
            self._next, self._span, self._stepped = None, span, False
            yield on_device(batch, self.device)
            self._complete_step()

    def step(self, **metrics: Scalar) -> None:
        """
        Say that the optimizer has made its step on the current batch.

        Args:
            metrics: This rank's numbers (0-dimensional tensors are best: nothing waits for the
                GPU). They are averaged over ranks and recorded for every step. Training ends
                with an error if ``loss`` is not finite.

        Raises:
            UserCodeError: If it is called twice for a batch, or outside the loop.
        """
        if self._span is None or self._stepped:
            raise UserCodeError(
                "ctx.step was called outside a ctx.batches loop or twice for one batch",
                "Call it once in the body of the loop, after optimizer.step().",
            )
        self._stepped = True
        self._step += 1
        self._position = self._span.position_after
        self._metrics.append(self._step, {**metrics, DATA_WAIT: self._waited_s})
        self._waited_s = 0.0
        self._checkpointing.step_made()

    def due(self, event: str) -> bool:
        """
        Whether the spec wants something at the step just made; the same on every rank.

        Args:
            event: ``"evaluate"``: as ``[evaluate]`` says, and after the last step.
        """
        if event not in _EVENTS:
            raise UserCodeError(f"ctx.due knows {', '.join(_EVENTS)}, not {event!r}")
        if not self._stepped:
            return False
        return self._step == self._total_steps or self._is_multiple(self._job.evaluate.every)

    def evaluate(
        self, metrics_of: Callable[[Batch], Mapping[str, Scalar]], data: str = "valid"
    ) -> dict[str, float]:
        """
        Measure on held-out data: every sample once, shared by the ranks.

        Models that came from :meth:`prepare` are in evaluation mode meanwhile, no gradients are
        kept, and random generators are left as they were.

        Args:
            metrics_of: Gives the means over a batch.
            data: A data set of the spec.

        Returns:
            The means over the data set, on every rank; recorded as ``<data>/<name>``.
        """
        self._exchange()
        if self._reporter:
            self._reporter.stage("evaluating")
        with randomness.forked(), torch.no_grad(), _evaluation_mode(self._models):
            sums = self._sums(metrics_of, data)
        gathered = self._group.gather((*sums, self._skipped_rows.news()))
        weight = sum(count for _, count, _ in gathered)
        names = gathered[0][0]
        if any(of_rank.keys() != names.keys() for of_rank, *_ in gathered):
            raise UserCodeError(
                f"the ranks measured different things: {[sorted(each) for each, *_ in gathered]}",
                "Return the same metrics for every batch.",
            )
        self._skipped_rows.hear(news for *_, news in gathered)
        means = {name: sum(of_rank[name] for of_rank, *_ in gathered) / weight for name in names}
        if self._reporter:
            recorded = {f"{data}/{name}": value for name, value in means.items()}
            recorded |= self._skipped_rows.metrics(data)
            self._reporter.evaluation(self._step, recorded)
            self._reporter.stage("training")
        self._checkpointing.interrupted()
        return means

    def finish(self) -> None:
        """Complete the last step, save the final state; for the training function's caller."""
        if self._stream is None:
            raise UserCodeError(
                "the training function returned without having taken a batch",
                "Iterate over ctx.batches in it.",
            )
        if self._span is not None and self._stepped:
            self._complete_step()
        self._exchange()
        self._checkpointing.finish(self._place)
        if self._reporter:
            self._reporter.stage("finishing")
            self._reporter.close()

    def close(self) -> None:
        """
        Let the save under way come to its end, and write what was measured; raises nothing.

        To be called last, however training ended: what is being saved is whole, whatever has
        happened since.
        """
        self._checkpointing.close()
        if self._reporter:
            self._reporter.close()

    def release(self) -> None:
        """End what reads ahead: no batch is taken any more."""
        stream, self._stream = self._stream, None
        if close := getattr(stream, "close", None):
            close()

    @property
    def checkpoint(self) -> str | None:
        """Name of the newest committed checkpoint of this run."""
        return self._checkpointing.newest

    @property
    def newest_metrics(self) -> dict[str, float]:
        """Newest value of each metric, on rank 0; empty on the others."""
        return self._reporter.progress.metrics if self._reporter else {}

    @property
    def epochs_done(self) -> float:
        """Passes over the training data done so far, a fraction included."""
        return self._position / self._schedule.rows

    @property
    def _place(self) -> Place:
        epoch = max(self._position - 1, 0) // self._schedule.rows
        return Place(
            step=self._step,
            position=self._position,
            epoch=epoch,
            skipped_rows=self._skipped_rows.known,
        )

    def _source(self, data: str) -> DataSource:
        if data not in self._data:
            known = ", ".join(sorted(self._data))
            raise UserCodeError(f"the spec has no data set {data!r}; it has {known}")
        return self._data[data]

    def _peek(self) -> tuple[Span, Batch] | None:
        """The next span and batch, without taking it; None after the last."""
        if self._stream is None:
            self._check_models_are_tracked()
            self._tracked.begin(self._job.seed)
            stream = training_batches(
                self._source(_TRAINING_DATA),
                self._schedule,
                rank=self.rank,
                step=self._step,
                position=self._position,
            )
            self._stream = host_batches(stream, self.device)
        if self._next is None:
            began = time.perf_counter()
            self._next = next(self._stream, None)
            self._waited_s += time.perf_counter() - began
        return self._next

    def _check_models_are_tracked(self) -> None:
        if self._tracked.is_empty:
            raise UserCodeError(
                "nothing is tracked: after a restart the model would begin anew",
                "Call ctx.track(model=..., optimizer=...) before the loop.",
            )
        if self.world_size > 1 and not self._models and self._tracked.has_plain_model:
            raise UserCodeError(
                f"no model came from ctx.prepare: {self.world_size} ranks would train "
                f"{self.world_size} models",
                "Call model = ctx.prepare(model) first; it averages the gradients.",
            )
        self._check_optimizers()
        for model in self._models:
            trained = any(parameter.requires_grad for parameter in model.parameters())
            if trained and not self._tracked.holds(model):
                raise UserCodeError(
                    f"{type(unwrapped(model)).__name__} came from ctx.prepare and is not tracked",
                    "After a restart it would begin anew. Call ctx.track(model=...) before that.",
                )

    def _check_optimizers(self) -> None:
        if self.world_size == 1 or self._job.workers.parallel != "fsdp":
            return
        if (name := self._tracked.stray_optimizer(self._models)) is not None:
            raise UserCodeError(
                f"{name} has parameters of no model that came from ctx.prepare",
                "workers.parallel = 'fsdp' gives models other parameters: make the optimizer after "
                "ctx.prepare.",
            )

    def _complete_step(self) -> None:
        """The body of the loop has run: exchange, save and stop where that is due."""
        if not self._stepped:
            raise UserCodeError(
                "the loop asked for the next batch without having called ctx.step",
                "Call ctx.step(loss=loss) once for every batch, after optimizer.step().",
            )
        if not self._has_stepped:
            self._has_stepped = True
            self._tracked.check_storable()  # by now optimizers have their state
        # What has failed is tried again by the clock, not at every step of a fast cadence.
        is_failing = self._checkpointing.is_failing
        save = not is_failing and self._is_multiple(self._job.checkpoint.every)
        if save or self._metrics.is_due:
            self._exchange()
        self._span = None
        self._checkpointing.follow(self._place, is_due=save)

    def _exchange(self) -> None:
        """Exchange metrics, and what else the ranks have to say to each other."""
        word = self._checkpointing.word(exchange_s=self._metrics.exchange_s)
        exchange = self._metrics.exchange((word, self._skipped_rows.news()))
        self._skipped_rows.hear(news for _, news in exchange.words)
        if self._reporter is not None and exchange.points:
            points = self._skipped_rows.noted(exchange.points)
            self._reporter.steps(points, epoch=self._place.epoch)
        if exchange.failure is not None:
            raise exchange.failure
        self._checkpointing.hear([word for word, _ in exchange.words])

    def _is_multiple(self, cadence: Cadence) -> bool:
        """Whether a cadence in steps or epochs falls on the step just made."""
        if cadence.unit == "steps":
            return self._step % int(cadence.every) == 0
        if cadence.unit == "epochs":
            epochs, offset = divmod(self._position, self._schedule.rows)
            return offset == 0 and epochs % int(cadence.every) == 0
        return False

    def _sums(
        self, metrics_of: Callable[[Batch], Mapping[str, Scalar]], data: str
    ) -> tuple[dict[str, float], int]:
        """This rank's part of an evaluation: weighted sums, and the samples that counted."""
        batches = evaluation_batches(
            self._source(data),
            batch_size=self._job.data[data].batch_size,
            world_size=self.world_size,
            rank=self.rank,
        )
        names: list[str] = []
        weights: list[int] = []
        values: list[Scalar] = []
        for weight, batch in host_batches(batches, self.device):
            metrics = metrics_of(on_device(batch, self.device))
            names = names or list(metrics)
            if weight:
                weights.append(weight)
                values.extend(metrics[name] for name in names)
        table = np.array(to_floats(values)).reshape(len(weights), len(names))
        sums = np.array(weights, dtype=np.float64) @ table
        return dict(zip(names, sums.tolist(), strict=True)), sum(weights)


@contextmanager
def _evaluation_mode(models: Sequence[Module]) -> Iterator[None]:
    # Part by part: a user may keep some in evaluation mode while the rest is trained.
    were_training = [(part, part.training) for model in models for part in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for part, was_training in were_training:
            part.training = was_training
