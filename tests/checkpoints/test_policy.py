"""Which checkpoints the policy keeps: pure, so tried on very many."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from footplate.checkpoints import Facts, kept, unknown_metric
from footplate.spec import Keep, parse_cadence
from footplate.store import CheckpointName

BY = "valid/loss"

values = st.sampled_from([0.1, 0.2, 0.3, 0.4, math.nan, math.inf]) | st.floats()
keeps = st.builds(
    lambda last, best, mode, every: Keep(
        last=last, best=best, by=BY if best else None, mode=mode, every=every
    ),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from(["min", "max"]),
    st.none() | st.sampled_from(["1 step", "7 steps", "100 steps", "1 epoch", "3 epochs"]),
)


@st.composite
def histories(draw: st.DrawFn) -> dict[CheckpointName, Facts | None]:
    """Checkpoints in the order they are made, over attempts, some without a readable manifest."""
    steps = sorted(draw(st.sets(st.integers(1, 400), min_size=1, max_size=20)))
    history: dict[CheckpointName, Facts | None] = {}
    for step in steps:
        metrics = {BY: draw(values)} if draw(st.booleans()) else {}
        known = Facts(epoch=step // 50, metrics=metrics)
        history[CheckpointName(step, 1 + step // 90)] = (
            None if draw(st.integers(0, 9)) == 0 else known
        )
    return history


def _kept(history: Mapping[CheckpointName, Facts | None], keep: Keep) -> set[CheckpointName]:
    return kept(history, keep, facts=history.__getitem__)


@given(histories(), keeps)
def test_the_newest_always_stay(history: dict[CheckpointName, Facts | None], keep: Keep) -> None:
    """Whatever else is asked for, there is something to go on from."""
    stay = _kept(history, keep)
    assert stay >= set(sorted(history)[-keep.last :])
    assert stay <= set(history)


@given(histories(), keeps, st.data())
def test_the_protected_stay(
    history: dict[CheckpointName, Facts | None], keep: Keep, data: st.DataObject
) -> None:
    """A pin, or what an attempt has started from, and it costs no other its place."""
    protected = data.draw(st.sets(st.sampled_from(sorted(history))))
    elsewhere = CheckpointName(10**6, 99)
    stay = kept(history, keep, facts=history.__getitem__, protected={*protected, elsewhere})
    assert stay == _kept(history, keep) | protected


@given(histories(), keeps)
def test_removing_after_each_or_at_the_end_is_the_same(
    history: dict[CheckpointName, Facts | None], keep: Keep
) -> None:
    """So what is left does not depend on how often pruning failed, or on kills."""
    there: dict[CheckpointName, Facts | None] = {}
    for name in sorted(history):
        there[name] = history[name]
        there = {name: there[name] for name in _kept(there, keep)}
    assert set(there) == _kept(history, keep)


@given(histories(), st.integers(1, 3), st.sampled_from(["min", "max"]))
def test_the_best_stay(history: dict[CheckpointName, Facts | None], best: int, mode: str) -> None:
    """No checkpoint that is removed has a better value than those that stay for theirs."""
    keep = Keep.model_validate({"last": 1, "best": best, "by": BY, "mode": mode})
    stay = _kept(history, keep)
    sign = 1 if mode == "min" else -1

    def value(name: CheckpointName) -> float:
        known = history[name]
        found = known.metrics.get(BY, math.nan) if known else math.nan
        return sign * found if math.isfinite(found) else math.inf

    ranked = sorted({value(name) for name in history} - {math.inf})[:best]
    assert {value(name) for name in stay} >= set(ranked)
    for name in set(history) - stay:
        assert value(name) not in ranked or any(
            other < name and value(other) == value(name) for other in stay
        )


@given(histories(), st.integers(1, 200))
def test_one_of_each_stretch_stays(history: dict[CheckpointName, Facts | None], steps: int) -> None:
    """The last one: exactly at its end, if there is one there."""
    stay = _kept(history, Keep(last=1, every=parse_cadence(f"{steps} steps")))
    ends = {}
    for name in sorted(history):
        ends[math.ceil(name.step / steps)] = name
    assert stay == set(ends.values())


def test_epochs_end_where_their_last_checkpoint_is() -> None:
    """`every = "1 epoch"` keeps the state after each epoch, not one from its beginning."""
    history = {
        CheckpointName(step, 1): Facts(epoch=epoch)
        for step, epoch in [(20, 0), (40, 0), (44, 0), (60, 1), (88, 1), (100, 2), (120, 2)]
    }
    stay = kept(history, Keep(last=1, every=parse_cadence("1 epoch")), facts=history.__getitem__)
    assert sorted(name.step for name in stay) == [44, 88, 120]


def test_of_equal_values_the_first_stands() -> None:
    """It is the one that was evaluated; those after it only carry the value on."""
    measured = {44: 0.5, 88: 0.3, 100: 0.3, 120: 0.3, 132: 0.4, 150: 0.4}
    history = {CheckpointName(s, 1): Facts(metrics={BY: v}) for s, v in measured.items()}
    stay = kept(history, Keep(last=1, best=2, by=BY), facts=history.__getitem__)
    assert sorted(name.step for name in stay) == [88, 132, 150]


def test_manifests_are_read_only_where_the_policy_goes_by_them() -> None:
    """The newest so many, and every so many steps, stand in the names."""

    def refuse(name: CheckpointName) -> Facts | None:
        raise AssertionError(name)

    names = [CheckpointName(step, 1) for step in (10, 20, 30)]
    assert kept(names, Keep(last=1), facts=refuse) == {names[2]}
    every = parse_cadence("20 steps")
    assert kept(names, Keep(last=1, every=every), facts=refuse) == {names[1], names[2]}


def test_a_metric_that_is_not_there_is_named() -> None:
    """Otherwise nobody learns that nothing is kept for it."""
    keep = Keep(best=1, by="valid/los")
    assert unknown_metric(keep, {"valid/los": 1.0}) is None
    assert unknown_metric(Keep(), {}) is None
    told = unknown_metric(keep, {"valid/loss": 1.0, "loss": 2.0})
    assert told is not None
    assert "'valid/los' is no metric of this run, which has loss, valid/loss" in told
