"""Metrics over ranks: exact, whenever they are exchanged; wrong ones stop every rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from footplate.errors import NonFiniteLossError, UserCodeError
from footplate.tracking import MetricPoint
from footplate.train.group import RankGroup
from footplate.train.metrics import MetricBuffer, over_ranks, to_floats


class Clock:
    """Seconds that pass when they are told to."""

    now = 1000.0

    def seconds(self) -> float:
        """What the clock shows."""
        return self.now


def _exchanged(buffer: MetricBuffer) -> list[MetricPoint]:
    exchange = buffer.exchange(None)
    assert exchange.failure is None
    return exchange.points


def _values(points: Sequence[MetricPoint]) -> dict[int, dict[str, float]]:
    return {point.step: dict(point.metrics) for point in points}


def test_every_step_comes_once(alone: RankGroup) -> None:
    """What was kept is exchanged in order, with the time of its step, and then forgotten."""
    clock = Clock()
    buffer = MetricBuffer(alone, now=clock.seconds)
    for step in (1, 2):
        clock.now += 0.25
        buffer.append(step, {"loss": step / 3, "lr": torch.tensor(step)})

    assert _exchanged(buffer) == [
        MetricPoint(1, 1000250, {"loss": 1 / 3, "lr": 1.0}),
        MetricPoint(2, 1000500, {"loss": 2 / 3, "lr": 2.0}),
    ]
    assert _exchanged(buffer) == []


def test_a_tensor_may_change_afterwards(alone: RankGroup) -> None:
    """A metric is the value at its step, though the user goes on adding to the same tensor."""
    buffer = MetricBuffer(alone)
    total = torch.zeros(())
    for step in (1, 2, 3):
        total += step
        buffer.append(step, {"total": total})

    assert _values(_exchanged(buffer)) == {1: {"total": 1}, 2: {"total": 3}, 3: {"total": 6}}


def test_a_loss_keeps_no_graph(alone: RankGroup) -> None:
    """A loss that still has its graph can be given; its graph is not kept."""
    buffer = MetricBuffer(alone)
    weight = torch.ones(1, requires_grad=True)
    buffer.append(1, {"loss": (weight * 2).sum()})

    assert _values(_exchanged(buffer)) == {1: {"loss": 2}}


def test_a_metric_is_one_number(alone: RankGroup) -> None:
    """A batch of losses is refused where it is given, by name, and not at a later exchange."""
    with pytest.raises(UserCodeError, match=r"the metric 'loss' has shape \(32,\)"):
        MetricBuffer(alone).append(1, {"loss": torch.zeros(32)})


@given(
    values=st.lists(
        st.one_of(
            st.floats(allow_nan=False),
            st.integers(-(2**53), 2**53),
            st.floats(allow_nan=False, width=32).map(torch.tensor),
            st.floats(allow_nan=False).map(lambda x: torch.tensor([x], dtype=torch.float64)),
            st.integers(-1000, 1000).map(torch.tensor),
            st.booleans().map(torch.tensor),
        )
    )
)
def test_floats_keep_every_bit(values: list[Any]) -> None:
    """Numbers and tensors of any type, mixed, are the same numbers in the same places."""
    assert to_floats(values) == [float(value) for value in values]


def test_the_next_exchange_follows_the_speed(alone: RankGroup) -> None:
    """The first step is exchanged at once, then about every half second, however long a step."""
    clock = Clock()
    buffer = MetricBuffer(alone, clock=clock.seconds)
    step = 0

    def steps_until_due(seconds_per_step: float) -> int:
        nonlocal step
        begun = step
        while not buffer.is_due:
            step += 1
            clock.now += seconds_per_step
            buffer.append(step, {})
        buffer.exchange(None)
        return step - begun

    assert steps_until_due(0.125) == 1
    assert steps_until_due(0.125) == 3  # one fast step says little
    assert steps_until_due(0.125) == 4
    assert steps_until_due(2.0) == 4  # as agreed before the steps became slow
    assert steps_until_due(2.0) == 1
    assert [steps_until_due(0.0) for _ in range(10)] == [1, 3, 7, 15, 31, 63, 127, 200, 200, 200]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_found(alone: RankGroup, loss: float) -> None:
    """The steps before it are kept; it and what follows are not."""
    buffer = MetricBuffer(alone)
    for step, value in ((4, 1.0), (5, loss), (6, 2.0)):
        buffer.append(step, {"loss": torch.tensor(value)})

    exchange = buffer.exchange(None)

    assert _values(exchange.points) == {4: {"loss": 1.0}}
    assert isinstance(exchange.failure, NonFiniteLossError)
    assert f"loss is {loss} at step 5 on rank 0" in str(exchange.failure)


def test_other_metrics_may_be_anything(alone: RankGroup) -> None:
    """Only the loss ends a run; what else is measured is recorded as it is."""
    buffer = MetricBuffer(alone)
    buffer.append(1, {"loss": 1.0, "ratio": math.nan, "norm": math.inf})

    (point,) = _exchanged(buffer)

    assert math.isnan(point.metrics["ratio"])
    assert point.metrics["norm"] == math.inf


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_the_mean_is_the_mean(values: list[float]) -> None:
    """Averages are sums in rank order, divided once; but what all wait for is the greatest."""
    rows = [(1, {"loss": value, "wait": value}) for value in values]
    reduced = over_ranks(rows, greatest=("wait",))
    mean = reduced["loss"]

    assert reduced["wait"] == max(values)
    assert mean == sum(values) / len(values)
    assert min(values) - 1e-9 <= mean <= max(values) + 1e-9


def test_ranks_are_averaged_however_often_they_exchange(ranks: Any) -> None:
    """All ranks get the same averages, bit for bit, for any way to divide the steps."""

    def value(step: int, rank: int) -> float:
        return math.sin(step * 7 + rank)

    def on_each(group: RankGroup) -> list[dict[int, dict[str, float]]]:
        found = []
        for exchange_every in (1, 4, 24):
            buffer = MetricBuffer(group)
            values: dict[int, dict[str, float]] = {}
            for step in range(1, 25):
                loss = torch.tensor(value(step, group.rank), dtype=torch.float64)
                buffer.append(step, {"loss": loss, "rank": group.rank})
                if step % exchange_every == 0:
                    points = buffer.exchange(None).points
                    values |= {point.step: dict(point.metrics) for point in points}
            found.append(values)
        return found

    expected = {
        step: {"loss": sum(value(step, rank) for rank in range(3)) / 3, "rank": 1.0}
        for step in range(1, 25)
    }
    assert ranks.run(on_each) == [[expected] * 3] * 3


def test_all_ranks_learn_of_a_bad_loss(ranks: Any) -> None:
    """A loss that is no number on one rank names the step and that rank on every rank."""

    def on_each(group: RankGroup) -> tuple[list[int], str]:
        buffer = MetricBuffer(group)
        for step in (1, 2, 3):
            bad = group.rank == 2 and step == 2
            buffer.append(step, {"loss": math.nan if bad else 1.0})
        exchange = buffer.exchange(None)
        return [point.step for point in exchange.points], str(exchange.failure).partition("\n")[0]

    assert ranks.run(on_each) == [([1], "loss is nan at step 2 on rank 2")] * 3


def test_different_metrics_are_refused(ranks: Any) -> None:
    """Ranks that measure different things, or made different steps, all learn what and who."""

    def message(buffer: MetricBuffer) -> str:
        try:
            buffer.exchange(None)
        except UserCodeError as error:
            return error.message
        return "nothing"

    def on_each(group: RankGroup) -> tuple[str, str]:
        names, counts = MetricBuffer(group), MetricBuffer(group)
        names.append(1, {"loss": 1.0})
        names.append(2, {"loss": 1.0, **({"extra": 1.0} if group.rank == 1 else {})})
        for step in range(1, 4 - (group.rank == 2)):
            counts.append(step, {"loss": 1.0})
        return message(names), message(counts)

    expected = (
        "at step 2 rank 0 gave the metrics ['loss'] and rank 1 gave ['extra', 'loss']",
        "rank 0 made 3 steps since the last exchange and rank 2 made 2",
    )
    assert ranks.run(on_each) == [expected] * 3


def test_rank_0_decides_when_for_all(ranks: Any) -> None:
    """When to exchange next is what rank 0 says; what the ranks say is told to all of them."""

    def on_each(group: RankGroup) -> tuple[list[str], int]:
        now = 0.0
        buffer = MetricBuffer(group, clock=lambda: now)
        buffer.append(1, {})
        now += (0.1, 3.0, 0.001)[group.rank]
        words: list[str] = buffer.exchange(f"word of {group.rank}").words
        steps = 0
        while not buffer.is_due:
            steps += 1
            buffer.append(1 + steps, {})
        return words, steps

    assert ranks.run(on_each) == [(["word of 0", "word of 1", "word of 2"], 3)] * 3
