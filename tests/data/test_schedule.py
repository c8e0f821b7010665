"""Which batch comes when: nothing left out, nothing twice, wherever a run is taken up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.data.schedule import EvaluationPlan, Schedule, Span, training_schedule
from footplate.spec import Job

_ROWS = st.integers(1, 60)
_BATCHES = st.integers(1, 9)
_RANKS = st.integers(1, 5)
_LASTS: st.SearchStrategy[Literal["drop", "pad", "keep"]] = st.sampled_from(["drop", "pad", "keep"])


@st.composite
def _schedules(draw: st.DrawFn, *, max_steps: bool = True) -> Schedule:
    """Schedules that have steps; ended by epochs, by steps, or by both."""
    by_epochs = not max_steps or draw(st.booleans())
    by_steps = max_steps and (not by_epochs or draw(st.booleans()))
    schedule = Schedule(
        rows=draw(_ROWS),
        batch_size=draw(_BATCHES),
        world_size=draw(_RANKS),
        last=draw(_LASTS),
        epochs=draw(st.integers(1, 4)) if by_epochs else None,
        max_steps=draw(st.integers(1, 40)) if by_steps else None,
    )
    return schedule if schedule.steps_per_epoch else replace(schedule, last="pad")


def _positions(schedule: Schedule, spans: list[Span]) -> dict[int, Counter[int]]:
    """How often each position of each epoch's order is trained on."""
    counts: dict[int, Counter[int]] = {}
    for span in spans:
        trained = (place % schedule.rows for place in range(span.start, span.stop))
        counts.setdefault(span.epoch, Counter()).update(trained)
    return counts


@given(schedule=_schedules(), data=st.data())
def test_going_on_is_the_rest(schedule: Schedule, data: st.DataObject) -> None:
    """From any step on, what follows is what would have followed without the interruption."""
    spans = list(schedule.spans())
    done = data.draw(st.integers(0, len(spans)))
    position = spans[done - 1].position_after if done else 0

    assert list(schedule.spans(step=done, position=position)) == spans[done:]
    assert schedule.total_steps(step=done, position=position) == len(spans)


@given(schedule=_schedules())
def test_the_number_of_steps_is_known(schedule: Schedule) -> None:
    """As many steps come as were announced, and no limit is passed or left unused."""
    spans = list(schedule.spans())
    limits = [
        limit
        for limit in (
            schedule.max_steps,
            schedule.epochs and schedule.epochs * schedule.steps_per_epoch,
        )
        if limit is not None
    ]

    assert len(spans) == schedule.total_steps() == min(limits)


@given(schedule=_schedules())
def test_steps_are_whole_and_in_order(schedule: Schedule) -> None:
    """Every step has a global batch, the position only grows, and an epoch ends at its end."""
    position = 0
    for span in schedule.spans():
        if schedule.last != "keep" or span.stop < schedule.rows:
            assert len(span) == schedule.global_batch
        assert span.epoch * schedule.rows + span.start >= position
        assert span.position_after > position
        assert span.position_after <= (span.epoch + 1) * schedule.rows
        position = span.position_after


@given(schedule=_schedules(max_steps=False))
def test_dropping_leaves_less_than_a_step_out(schedule: Schedule) -> None:
    """Under "drop" no sample of an epoch comes twice, and fewer than a global batch not at all."""
    if schedule.rows < schedule.global_batch:
        schedule = replace(schedule, rows=schedule.rows + schedule.global_batch)
    schedule = replace(schedule, last="drop")

    counts = _positions(schedule, list(schedule.spans()))

    assert len(counts) == schedule.epochs
    for of_epoch in counts.values():
        assert set(of_epoch.values()) == {1}
        assert schedule.rows - len(of_epoch) < schedule.global_batch


@given(schedule=_schedules(max_steps=False))
def test_padding_leaves_nothing_out(schedule: Schedule) -> None:
    """Under "pad" every sample of an epoch comes, and no more is repeated than what is short."""
    schedule = replace(schedule, last="pad")

    counts = _positions(schedule, list(schedule.spans()))

    assert len(counts) == schedule.epochs
    for of_epoch in counts.values():
        assert of_epoch.keys() == set(range(schedule.rows))
        assert 0 <= of_epoch.total() - schedule.rows < schedule.global_batch
        assert max(of_epoch.values()) - min(of_epoch.values()) <= 1


@given(schedule=_schedules(max_steps=False))
def test_keeping_repeats_next_to_nothing(schedule: Schedule) -> None:
    """Under "keep" every sample of an epoch comes, once, unless ranks would go without any."""
    schedule = replace(schedule, last="keep")
    short = (schedule.rows - 1) % schedule.global_batch + 1

    counts = _positions(schedule, list(schedule.spans()))

    assert len(counts) == schedule.epochs
    for of_epoch in counts.values():
        assert of_epoch.keys() == set(range(schedule.rows))
        assert of_epoch.total() - schedule.rows == max(schedule.world_size - short, 0)


@given(schedule=_schedules())
def test_ranks_share_a_step(schedule: Schedule) -> None:
    """The shares of all ranks are the step, one after the other, and nearly or quite equal."""
    for span in schedule.spans():
        shares = [span.share(rank) for rank in range(schedule.world_size)]

        assert [start for start, _ in shares] == [span.start, *(stop for _, stop in shares[:-1])]
        assert shares[-1][1] == span.stop
        sizes = [stop - start for start, stop in shares]
        assert 1 <= max(sizes) <= schedule.batch_size
        assert max(sizes) - min(sizes) <= (schedule.last == "keep")
        assert min(sizes) >= 1


@given(schedule=_schedules(), data=st.data())
def test_missing_ranks_change_no_step(schedule: Schedule, data: st.DataObject) -> None:
    """
    Ranks come and go between any steps: every step has the samples that it has with all of them.

    In the same order, each once, and whole steps in equal shares for every number of ranks that
    divides them: so the mean over all is the same.
    """
    schedule = replace(schedule, epochs=schedule.epochs or 2)
    whole = list(schedule.spans())
    step = position = 0
    found: list[tuple[int, int, int]] = []
    while step < len(whole):
        present = data.draw(st.integers(1, schedule.world_size))
        fewer = replace(schedule, present=present)
        assert fewer.total_steps(step=step, position=position) == len(whole)
        steps = data.draw(st.integers(1, len(whole) - step))
        for span in islice(fewer.spans(step=step, position=position), steps):
            shares = [span.share(rank) for rank in range(present)]
            starts = [start for start, _ in shares]
            assert starts == [span.start, *(stop for _, stop in shares[:-1])]
            sizes = {stop - start for start, stop in shares}
            if len(span) == schedule.global_batch and schedule.global_batch % present == 0:
                assert sizes == {schedule.global_batch // present}
            found.append((span.epoch, shares[0][0], shares[-1][1]))
            position = span.position_after
        step += steps
    assert found == [(span.epoch, span.start, span.stop) for span in whole]


@given(schedule=_schedules(max_steps=False), after=_RANKS, batch=_BATCHES, data=st.data())
def test_another_number_of_ranks_takes_what_remains(
    schedule: Schedule, after: int, batch: int, data: st.DataObject
) -> None:
    """
    A run that goes on with other ranks trains on exactly the samples not yet trained on.

    Each once, but for what "drop" leaves out and "pad" repeats at the end of the epoch, and for
    what "keep" repeats so that every rank has a sample.
    """
    before = list(schedule.spans())
    done = data.draw(st.integers(0, len(before)))
    position = before[done - 1].position_after if done else 0
    changed = replace(schedule, world_size=after, batch_size=batch)

    spans = list(changed.spans(step=done, position=position))

    assert changed.total_steps(step=done, position=position) == done + len(spans)
    epoch, offset = divmod(position, schedule.rows)
    trained = _positions(changed, spans)
    assert schedule.epochs is not None
    for number in range(epoch, schedule.epochs):
        counts = trained.pop(number, Counter())
        remaining = set(range(offset if number == epoch else 0, schedule.rows))
        if schedule.last == "drop":
            assert counts.keys() <= remaining
            assert counts.total() == len(counts)
            assert len(remaining) - len(counts) < changed.global_batch
        else:
            assert counts.keys() >= remaining
            at_most = changed.global_batch if schedule.last == "pad" else after
            assert counts.total() - len(remaining) < at_most
    assert not trained


@given(schedule=_schedules(), data=st.data())
def test_smaller_limits_end_at_once(schedule: Schedule, data: st.DataObject) -> None:
    """Limits lowered below where a run stands leave nothing to do, and no error."""
    spans = list(schedule.spans())
    done = data.draw(st.integers(1, len(spans)))
    position = spans[done - 1].position_after

    by_steps = replace(schedule, max_steps=data.draw(st.integers(1, done)))
    assert list(by_steps.spans(step=done, position=position)) == []
    assert by_steps.total_steps(step=done, position=position) == done

    whole_epochs = position // schedule.rows
    if whole_epochs:
        by_epochs = replace(schedule, epochs=data.draw(st.integers(1, whole_epochs)))
        assert list(by_epochs.spans(step=done, position=position)) == []
        assert by_epochs.total_steps(step=done, position=position) == done


def test_larger_limits_go_on() -> None:
    """A finished run whose limits are raised goes on behind its last epoch."""
    finished = Schedule(rows=10, batch_size=2, world_size=2, epochs=1)
    last = list(finished.spans())[-1]

    more = list(replace(finished, epochs=2).spans(step=2, position=last.position_after))

    assert more == [Span(1, 0, 4, 14, 2), Span(1, 4, 8, 20, 2)]


@pytest.mark.parametrize(("epochs", "max_steps"), [(3, None), (None, 5), (3, 5)])
def test_too_little_data_ends_at_once(epochs: int | None, max_steps: int | None) -> None:
    """A data set smaller than a step has no steps under "drop": nothing loops or is made up."""
    schedule = Schedule(rows=7, batch_size=4, world_size=2, epochs=epochs, max_steps=max_steps)

    assert schedule.total_steps() == 0
    assert list(islice(schedule.spans(), 10)) == []


def test_too_little_data_is_repeated_by_padding() -> None:
    """Under "pad" such a data set makes one step an epoch."""
    schedule = Schedule(rows=3, batch_size=4, world_size=2, last="pad", epochs=2)

    assert list(schedule.spans()) == [Span(0, 0, 8, 3, 2), Span(1, 0, 8, 6, 2)]


def test_a_short_last_step_is_shared_out() -> None:
    """Under "keep" nine samples for four ranks are three and three times two."""
    schedule = Schedule(rows=25, batch_size=4, world_size=4, last="keep", epochs=1)

    *_, last = schedule.spans()

    assert [last.share(rank) for rank in range(4)] == [(16, 19), (19, 21), (21, 23), (23, 25)]


def test_no_rank_goes_without() -> None:
    """Under "keep" a step of fewer samples than ranks goes on with the start of the epoch."""
    schedule = Schedule(rows=18, batch_size=4, world_size=4, last="keep", epochs=1)

    *_, last = schedule.spans()

    assert [last.share(rank) for rank in range(4)] == [(16, 17), (17, 18), (18, 19), (19, 20)]
    assert last.position_after == 18


@pytest.mark.parametrize("last", ["drop", "pad"])
@pytest.mark.parametrize("present", [1, 2, 4])
def test_a_job_says_what_a_step_is(last: str, present: int) -> None:
    """However many ranks share it, it is as large as with all of them."""
    values = {
        "name": "toy",
        "entrypoint": "toy:train",
        "workers": {"min": 1, "max": 2, "ranks": 2},
        "limits": {"max_steps": 7},
        "data": {"train": {"manifest": "a.json", "batch_size": 3, "last": last}},
    }
    job = Job.from_dict(values, folder=Path.cwd(), source="test")

    schedule = training_schedule(job, 100, world_size=present)

    assert (schedule.global_batch, schedule.steps_per_epoch) == (12, 8 + (last == "pad"))
    assert [span.position_after for span in schedule.spans()] == [12 * n for n in range(1, 8)]
    shares = [next(schedule.spans()).share(rank) for rank in range(present)]
    assert shares == [(n * 12 // present, (n + 1) * 12 // present) for n in range(present)]


@given(rows=_ROWS, batch=_BATCHES, first=_RANKS, then=_RANKS)
def test_an_evaluation_is_the_same_with_any_ranks(
    rows: int, batch: int, first: int, then: int
) -> None:
    """The batches that count are the same; only who takes them differs."""

    def counted(ranks: int) -> list[tuple[int, int]]:
        plan = EvaluationPlan(rows=rows, batch_size=batch, world_size=ranks)
        batches = (each for rank in range(ranks) for each in plan.batches(rank))
        return sorted((start, stop) for start, stop, weight in batches if weight)

    assert counted(first) == counted(then)


@given(rows=_ROWS, batch=_BATCHES, ranks=_RANKS)
def test_an_evaluation_counts_every_sample_once(rows: int, batch: int, ranks: int) -> None:
    """The batches of all ranks that count are every sample once, whatever the ranks."""
    plan = EvaluationPlan(rows=rows, batch_size=batch, world_size=ranks)
    batches = [list(plan.batches(rank)) for rank in range(ranks)]

    counted = [
        sample
        for of_rank in batches
        for start, stop, weight in of_rank
        if weight
        for sample in range(start, stop)
    ]

    assert sorted(counted) == list(range(rows))
    for of_rank in batches:
        assert len(of_rank) == len(batches[0])
        for start, stop, weight in of_rank:
            assert 0 <= start < stop <= rows
            assert stop - start <= batch
            assert weight in (0, stop - start)
