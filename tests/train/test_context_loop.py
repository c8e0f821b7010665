"""The training loop on real data, through Ray Data: what is saved, when, and how it goes on."""

from __future__ import annotations

import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from footplate.checkpoints import committed, read_manifest
from footplate.data.order import ShuffledOrder
from footplate.errors import NonFiniteLossError, PreemptedError, UserCodeError
from footplate.store import (
    CheckpointName,
    Notice,
    Progress,
    SaveInterval,
    Store,
    read_record,
    read_record_if_there,
    to_json,
)
from footplate.tracking import read_points
from footplate.train import Batch, Context
from footplate.train.context import StopTraining
from footplate.train.reliability import unknown_reliability

pytestmark = [
    pytest.mark.local,
    pytest.mark.filterwarnings("default"),  # Ray Data warns about itself
    pytest.mark.usefixtures("local_ray"),
]

_STEPS_PER_EPOCH = 5  # 22 samples, 4 a step


class KilledError(Exception):
    """Stands for whatever ends a process."""


class Toy(nn.Module):
    """A model with everything that has state: weights, statistics, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One number for each sample."""
        result: torch.Tensor = self.layers(x)
        return result


def _train(
    ctx: Context,
    after_step: Callable[[Context], None] = lambda _: None,
    model: Toy | None = None,
) -> None:
    """Train, drawing from every random generator; ``after_step`` is the end of the body."""
    model = model or Toy()
    ctx.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=ctx.total_steps)
    generator = torch.Generator().manual_seed(ctx.seed)
    ctx.track(model=model, optimizer=optimizer, scheduler=scheduler, generator=generator)
    for batch in ctx.batches("train"):
        noise = torch.rand(1, generator=generator)
        drawn = random.uniform(0, 1) + float(np.random.random())  # noqa: S311
        loss = (model(batch["x"]) - noise - drawn).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ctx.step(
            loss=loss,
            lr=scheduler.get_last_lr()[0],
            samples=batch["number"].double().dot(10.0 ** torch.arange(0, 8, 2).double()),
        )
        scheduler.step()
        after_step(ctx)


def _killed_at(step: int) -> Callable[[Context], None]:
    def kill(ctx: Context) -> None:
        if ctx.step_number == step:
            raise KilledError

    return kill


def _saved_steps(place: Any) -> list[int]:
    return [name.step for name in committed(place.store, place.run)]


def _numbers(ctx: Context, upto: int | None = None) -> list[list[int]]:
    """The samples of each step, of so many steps."""
    numbers = []
    for batch in ctx.batches():
        numbers.append(batch["number"].tolist())
        ctx.step()
        if len(numbers) == upto:
            break
    return numbers


@pytest.fixture
def uninterrupted(new_place: Any) -> dict[int, Any]:
    """The metrics of a run of the same job that nothing happens to."""
    other = new_place()
    ctx = other.attempt()
    _train(ctx)
    ctx.finish()
    assert ctx.step_number == ctx.total_steps
    metrics: dict[int, Any] = other.metrics()
    return metrics


@pytest.mark.parametrize("kills", [[1], [4], [6, 9], [14, 15]])
def test_killed_runs_repeat_bit_for_bit(
    place: Any, uninterrupted: dict[int, Any], kills: list[int]
) -> None:
    """
    Wherever it is killed, every step's loss, rate and samples are those of an untouched run.

    Dropout, batch statistics, the scheduler's step after ctx.step, and the numbers of Python,
    NumPy, torch and a generator of the user's all enter the loss.
    """
    for step in kills:
        ctx = place.attempt()
        with pytest.raises(KilledError):
            _train(ctx, _killed_at(step))
        ctx.close()
    ctx = place.attempt()
    began = ctx.step_number
    _train(ctx)

    ctx.finish()
    assert ctx.step_number == ctx.total_steps
    assert len(uninterrupted) == 3 * _STEPS_PER_EPOCH
    assert place.metrics() == uninterrupted
    # The newest two, and what the last attempt began with.
    assert set(_saved_steps(place)) == {12, 15} | {step for step in [began] if step}


def test_batches_are_the_users_to_change(place: Any) -> None:
    """A batch is tensors of the declared type and shape, writable, on the rank's device."""
    ctx = place.attempt()

    batch = next(iter(ctx.batches()))

    assert {name: (each.dtype, tuple(each.shape)) for name, each in batch.items()} == {
        "x": (torch.float32, (4, 3)),
        "number": (torch.int64, (4,)),
    }
    batch["x"].zero_()


def test_training_without_state_is_refused(place: Any) -> None:
    """A loop that tracks nothing, or not what it trains, would begin anew after a restart."""
    ctx = place.attempt(tracked=False)
    with pytest.raises(UserCodeError, match="nothing is tracked"):
        next(ctx.batches("train"))
    other = place.attempt()
    other.prepare(torch.nn.Linear(3, 1))
    with pytest.raises(UserCodeError, match="and is not tracked"):
        next(other.batches("train"))


class _Grown:
    """State of a type that can't be stored, once there is any."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def state_dict(self) -> dict[str, Any]:
        """What was seen."""
        return {"seen": self.seen or None}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it over."""
        self.seen = state_dict["seen"] or set()


def test_state_that_can_not_be_saved_is_told_after_the_first_step(place: Any) -> None:
    """Not hours later, when it is to be saved and all would be lost."""
    ctx = place.attempt(checkpoint={"every": "3 epochs"})
    grown = _Grown()
    ctx.track(grown=grown)
    batches = iter(ctx.batches())
    next(batches)
    ctx.step()
    grown.seen.add(1)
    with pytest.raises(UserCodeError, match=r"grown\.seen is a set, which can't be stored"):
        next(batches)


def test_epochs_can_be_the_users_loop(place: Any) -> None:
    """Inside ctx.epochs the batches end with each epoch, and one is never repeated."""
    ctx = place.attempt()

    epochs = [(epoch, ctx.epoch, _numbers(ctx)) for epoch in ctx.epochs()]

    order = ShuffledOrder([5, 5, 5, 5, 2], seed=3)
    assert [(epoch, seen) for epoch, seen, _ in epochs] == [(0, 0), (1, 1), (2, 2)]
    assert [numbers for *_, numbers in epochs] == [
        order.take(epoch, 0, 20).ids.reshape(5, 4).tolist() for epoch in range(3)
    ]
    ctx.finish()
    assert ctx.step_number == ctx.total_steps


def test_a_run_goes_on_in_the_middle_of_an_epoch(place: Any, new_place: Any) -> None:
    """The first epoch after a restart is the rest of the one that was interrupted."""
    whole = [_numbers(ctx) for ctx in [new_place().attempt()] for _ in ctx.epochs()]
    ctx = place.attempt()
    for epoch in ctx.epochs():
        _numbers(ctx, upto=3 if epoch == 1 else None)
        if epoch == 1:
            break
    ctx.finish()

    ctx = place.attempt()
    rest = [(epoch, _numbers(ctx)) for epoch in ctx.epochs()]

    assert rest == [(1, whole[1][3:]), (2, whole[2])]


def test_an_epoch_without_batches_is_refused(place: Any) -> None:
    """A loop over epochs that takes no batches would never end."""
    with pytest.raises(UserCodeError, match=r"nothing was taken from ctx\.batches in epoch 0"):
        for _ in place.attempt().epochs():
            pass


def test_leaving_the_loop_early_saves(place: Any) -> None:
    """A break after a step ends the run there, with that step saved."""
    ctx = place.attempt()
    taken = _numbers(ctx, upto=3)

    ctx.finish()
    assert ctx.step_number < ctx.total_steps
    assert _saved_steps(place) == [3]
    assert _numbers(place.attempt(), upto=1)[0] not in taken


def test_leaving_before_the_step_saves(place: Any) -> None:
    """A break before ctx.step leaves its batch for whoever goes on."""
    ctx = place.attempt()
    seen = []
    for batch in ctx.batches():
        seen.append(batch["number"].tolist())
        if ctx.step_number == 2:
            break
        ctx.step()

    ctx.finish()
    assert ctx.step_number < ctx.total_steps
    assert _saved_steps(place) == [2]
    assert _numbers(place.attempt(), upto=1) == seen[2:]


def test_a_second_loop_goes_on(place: Any, new_place: Any) -> None:
    """A loop that was left can be followed by another one; no batch or checkpoint is left out."""
    ctx = place.attempt(checkpoint={"keep": {"last": 9}})

    numbers = _numbers(ctx, upto=4) + _numbers(ctx)

    ctx.finish()
    assert _saved_steps(place) == [4, 8, 12, 15]
    assert ctx.step_number == ctx.total_steps
    assert numbers == _numbers(new_place().attempt())


def test_every_batch_is_one_step(place: Any) -> None:
    """A body without a step, or with two, is an error that says what to do."""
    with pytest.raises(UserCodeError, match=r"without having called ctx\.step"):
        for _ in place.attempt().batches():
            pass

    ctx = place.attempt()
    batches = iter(ctx.batches())
    next(batches)
    ctx.step(loss=1.0)
    with pytest.raises(UserCodeError, match="twice for one batch"):
        ctx.step(loss=1.0)
    assert ctx.step_number == 1


def test_what_is_due_when(new_place: Any) -> None:
    """Every so many steps or epochs, and after the last step in any case."""

    def due(**changes: Any) -> list[int]:
        ctx = new_place().attempt(**changes)
        found = []
        for _ in ctx.batches():
            assert not ctx.due("evaluate")
            ctx.step()
            if ctx.due("evaluate"):
                found.append(ctx.step_number)
        return found

    assert due(evaluate={"every": "4 steps"}) == [4, 8, 12, 15]
    assert due(evaluate={"every": "1 epoch"}) == [5, 10, 15]
    assert due(evaluate={"every": "2 epochs"}) == [10, 15]
    assert due(evaluate={"every": "100 steps"}, limits={"max_steps": 7}) == [7]


def test_a_stop_is_not_caught_by_the_user(place: Any) -> None:
    """Asked to stop, a run saves and leaves the training function, past any ``except``."""
    endless = {"limits": {"epochs": 100_000}, "checkpoint": {"every": "1h"}}
    ctx = place.attempt(**endless)
    place.store.put(place.run.attempt(1).stop, b"{}")

    def careless() -> None:
        for _ in ctx.batches():
            try:
                ctx.step(loss=1.0)
            except Exception:
                raise AssertionError("nothing fails here") from None

    with pytest.raises(StopTraining):
        careless()
    assert not issubclass(StopTraining, Exception)
    assert _saved_steps(place) == [ctx.step_number]
    assert ctx.checkpoint == str(committed(place.store, place.run)[-1])
    assert place.attempt(**endless).step_number == ctx.step_number


def _endless(place: Any, **checkpoint: Any) -> Context:
    """An attempt that ends only for another reason than being done."""
    changes = {"limits": {"epochs": 100_000}, "checkpoint": {"every": "1h", **checkpoint}}
    ctx: Context = place.attempt(**changes)
    return ctx


def _reasons(place: Any) -> list[str]:
    manifests = [
        read_manifest(place.store, place.run, n) for n in committed(place.store, place.run)
    ]
    return [manifest.reason for manifest in manifests if manifest is not None]


def test_a_notice_is_obeyed(place: Any) -> None:
    """What is known when it comes is saved at once, and the rest just before time is up."""
    ctx = _endless(place)
    deadline = time.time() + 9
    notice = Notice(nodes={"n": deadline}, head="n", reason="the head will be gone", time=1.0)
    place.store.put(place.run.attempt(1).notice, to_json(notice))
    with pytest.raises(StopTraining) as left:
        _numbers(ctx)
    assert time.time() < deadline
    assert isinstance(left.value.error, PreemptedError)
    assert str(left.value.error).startswith(
        "left before machines were taken away (the head will be gone); "
        f"saved up to step {ctx.step_number}"
    )
    assert _reasons(place) == ["preemption"] * 2
    assert _saved_steps(place)[0] < _saved_steps(place)[1] == ctx.step_number


def test_the_end_of_other_machines_is_not_ours(place: Any) -> None:
    """A node that no rank is on may go."""
    ctx = place.attempt()
    notice = Notice(nodes={"n": time.time()}, head="h", reason="a node will be gone", time=1.0)
    place.store.put(place.run.attempt(1).notice, to_json(notice))
    assert len(_numbers(ctx)) == ctx.total_steps


def test_a_store_that_is_away_for_a_moment_costs_nothing(place: Any) -> None:
    """What is wrong is shown, training goes on, and it is saved as soon as that is possible."""
    ctx = _endless(place, every="1s")
    blocked = place.store.folder / place.run.checkpoints
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.touch()  # where a folder has to be
    shown = place.run.attempt(1).progress
    detail = ""
    for _ in ctx.batches():
        ctx.step(loss=1.0)
        if ctx.step_number % 100 == 0 and not detail:
            progress = read_record_if_there(place.store, shown, Progress)
            if progress is not None and (detail := progress.detail):
                blocked.unlink()
        if ctx.checkpoint is not None:
            break
    ctx.close()
    assert "could not be saved, it is tried again in 5 s (failure 1 of 3): " in detail
    assert read_record(place.store, shown, Progress).detail == ""


def test_a_save_that_failed_is_repeated_when_it_is_time(place: Any) -> None:
    """Not at once, because the next one is due by the clock when the ranks hear of the failure."""
    ctx = _endless(place, every="1s")
    blocked = place.store.folder / place.run.checkpoints
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.touch()  # where a folder has to be
    failures = []
    for _ in ctx.batches():
        time.sleep(1.1)  # a step so long that the ranks exchange after each
        ctx.step(loss=1.0)
        failures.append(ctx._checkpointing._saver._setbacks._failures)
        if failures[-3:] == [1, 1, 1] or failures[-1] > 1:
            break
    ctx.close()
    assert failures[-1] == 1


class _Slow(Store):
    """Takes the data of a checkpoint only when it is told to."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.may_write = threading.Event()

    def put_blocks(self, path: str, blocks: Iterable[memoryview], size: int) -> None:
        assert self.may_write.wait(60)
        super().put_blocks(path, blocks, size)


def test_a_save_that_takes_longer_than_it_may_is_told(place: Any) -> None:
    """When the next one is due, and no longer once a checkpoint is there."""
    place.store = _Slow(place.store.uri)
    ctx = _endless(place, every="1s")
    shown = place.run.attempt(1).progress
    details = [""]
    for _ in ctx.batches():
        ctx.step(loss=1.0)
        if ctx.step_number % 100 == 0:
            progress = read_record_if_there(place.store, shown, Progress)
            if progress is not None and progress.detail != details[-1]:
                details.append(progress.detail)
                place.store.may_write.set()
        if len(details) == 3:
            break
    ctx.close()
    assert re.fullmatch(
        r"a save that began \d s ago is not done yet, and the next one is due "
        r"\(checkpoint\.every = 1s\)",
        details[1],
    )
    assert details[2] == ""
    assert committed(place.store, place.run)


def test_what_a_save_costs_is_recorded(place: Any) -> None:
    """How long training stood still is a metric of the step, and part of the manifest."""
    ctx = place.attempt()
    _numbers(ctx)
    ctx.finish()
    stalls = {
        point.step: point.metrics["time/checkpoint_stall_s"]
        for point in read_points(place.store, place.run)
        if "time/checkpoint_stall_s" in point.metrics
    }
    assert list(stalls) == [4, 8, 12]
    manifest = read_manifest(place.store, place.run, CheckpointName(12, 1))
    assert manifest is not None
    assert manifest.stall_s == stalls[12] > 0
    assert (manifest.reason, manifest.tracked) == ("interval", ())
    assert _reasons(place)[-1] == "end"


def test_what_a_step_waits_for_its_batch_is_recorded(place: Any) -> None:
    """As long as the loop stood still, step by step."""
    ctx = place.attempt()
    seen: list[float] = []
    batches = iter(ctx.batches())
    for _ in range(ctx.total_steps):
        began = time.perf_counter()
        next(batches)
        seen.append(time.perf_counter() - began)
        ctx.step()
    ctx.finish()
    recorded = [
        point.metrics["time/data_wait_s"]
        for point in read_points(place.store, place.run)
        if "time/data_wait_s" in point.metrics
    ]

    assert len(recorded) == len(seen)
    # The first one waited until its rows were read, the others for little.
    assert 0.5 * seen[0] < recorded[0]
    assert all(0 < wait <= stood for wait, stood in zip(recorded, seen, strict=True))


def test_how_often_it_saves_is_found_out(place: Any) -> None:
    """A chosen interval stands in the store, with what it rests on, and is shown."""
    known = SaveInterval(
        interval_s=0.2,  # an earlier attempt's, so that nobody waits for a minute
        stall_s=0.0,
        slowdown_s=0.0,
        save_s=0.1,
        restart_s=1.0,
        mttf_s=10.0,
        failures=9,
        goodput=0.5,
        time=1.0,
    )
    reliability = replace(unknown_reliability(place.job()), interval=known.model_dump())
    endless = {"limits": {"epochs": 100_000}, "checkpoint": {"every": "auto"}}
    ctx = place.attempt(reliability=reliability, **endless)
    paths = place.run.attempt(1)
    for _ in ctx.batches():
        ctx.step(loss=1.0)
        if place.store.size(paths.interval) is not None:
            break
    ctx.close()
    interval = read_record(place.store, paths.interval, SaveInterval)
    assert 1 <= interval.interval_s <= 600
    assert 0 < interval.stall_s <= interval.save_s
    assert (interval.failures, interval.mttf_s > 3600, interval.goodput > 0.9) == (0, True, True)
    assert read_record(place.store, paths.progress, Progress).save_every_s == interval.interval_s


def test_a_bad_loss_is_never_saved(place: Any) -> None:
    """A loss that is no number ends the run, naming its step, before a checkpoint would hold it."""
    ctx = place.attempt(checkpoint={"every": "1 steps"})

    def diverge() -> None:
        for _ in ctx.batches():
            ctx.step(loss=math.nan if ctx.step_number == 2 else 1.0)

    with pytest.raises(NonFiniteLossError, match="loss is nan at step 3 on rank 0"):
        diverge()
    ctx.close()

    assert _saved_steps(place)[-1] == 2
    assert sorted(place.metrics()) == [1, 2]


def test_other_numbers_may_be_bad(place: Any) -> None:
    """A metric that is no number is recorded, and keeps nobody from going on."""
    ctx = place.attempt()
    for _ in ctx.batches():
        ctx.step(loss=1.0, norm=math.inf, ratio=math.nan)
        if ctx.step_number == 4:
            break
    ctx.finish()

    resumed = place.attempt()

    assert resumed.step_number == 4
    assert place.metrics()[4]["norm"] == math.inf
    assert math.isnan(place.metrics()[4]["ratio"])


def test_the_last_epoch_is_the_last(place: Any) -> None:
    """What is saved after the last step of an epoch belongs to that epoch."""
    ctx = place.attempt(checkpoint={"every": "1 epoch", "keep": {"last": 9}})
    _numbers(ctx)
    ctx.finish()

    epochs = [
        place.store.get(f"{place.run.checkpoint(name)}/checkpoint.json").count(b'"epoch": %d' % at)
        for at, name in enumerate(committed(place.store, place.run))
    ]
    assert _saved_steps(place) == [5, 10, 15]
    assert epochs == [1, 1, 1]


def test_evaluation_is_exact(place: Any) -> None:
    """Means over a data set weigh samples, not batches: the ragged last one counts for its own."""
    ctx = place.attempt()
    (file,) = (place.store.folder.parent / "valid").glob("*.parquet")
    raw = b"".join(pq.read_table(file).column("x").to_pylist())
    expected = np.frombuffer(raw, dtype=np.float32).reshape(13, 3).astype(np.float64)
    sizes = []

    def measured(batch: Batch) -> dict[str, Any]:
        sizes.append(len(batch["number"]))
        assert not torch.is_grad_enabled()
        return {
            "mean": batch["x"].double().mean(),
            "number": float(batch["number"].double().mean()),
        }

    means = ctx.evaluate(measured, data="valid")

    assert sizes == [5, 5, 3]
    assert means == {
        "mean": pytest.approx(expected.mean(), rel=1e-12),
        "number": pytest.approx(6.0, rel=1e-12),
    }
    ctx.close()
    assert place.metrics() == {
        0: {"valid/mean": means["mean"], "valid/number": means["number"]},
    }


def test_evaluation_leaves_no_trace(place: Any, uninterrupted: dict[int, Any]) -> None:
    """A run that evaluates after every step trains exactly as one that never does."""

    def evaluate(ctx: Context) -> None:
        def measured(batch: Batch) -> dict[str, Any]:
            assert not any(part.training for part in model.modules())
            drawn = random.uniform(0, 1) + np.random.random()  # noqa: S311
            return {"loss": model(batch["x"]).mean() + torch.rand(()) + drawn}

        ctx.evaluate(measured)

    ctx = place.attempt()
    model = Toy()
    _train(ctx, evaluate, model)
    ctx.finish()

    found = {
        step: {name: value for name, value in metrics.items() if "/" not in name}
        for step, metrics in place.metrics().items()
    }
    assert found == uninterrupted


def test_evaluation_leaves_every_part_as_it_was(place: Any) -> None:
    """A part that the user keeps in evaluation mode stays so, and the rest trains on."""
    ctx = place.attempt()
    model = Toy()
    ctx.prepare(model)
    model.layers[1].eval()
    before = [part.training for part in model.modules()]

    ctx.evaluate(lambda batch: {"mean": model(batch["x"]).mean()})
    with pytest.raises(KilledError):
        ctx.evaluate(_raise_killed)

    assert [part.training for part in model.modules()] == before
    assert before.count(False) == 1


def _raise_killed(_: Batch) -> dict[str, float]:
    raise KilledError
