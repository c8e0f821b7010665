"""Cutting a plan into portions loses nothing of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from footplate.data.order import ShuffledOrder
from footplate.data.plan import Range, joined, portions_of, selections

_SIZES = st.lists(st.integers(0, 20), max_size=30)
_SAMPLES = st.integers(1, 50)


def _plan(sizes: list[int]) -> list[tuple[int, Range]]:
    """Steps with consecutive ranges of these sizes."""
    stops = list(itertools.accumulate(sizes))
    starts = [0, *stops][: len(sizes)]
    return list(enumerate(map(Range, [3] * len(sizes), starts, stops)))


@given(sizes=_SIZES, samples=_SAMPLES)
def test_portions_are_the_plan(sizes: list[int], samples: int) -> None:
    """One after the other they are all steps with their ranges, and none is empty."""
    plan = _plan(sizes)

    portions = list(portions_of(plan, samples))

    assert all(steps for steps, _ in portions)
    found = [pair for steps, ranges in portions for pair in zip(steps, ranges, strict=True)]
    assert found == plan


@given(ranges=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(0, 3))))
def test_joined_ranges_are_the_same_samples(ranges: list[tuple[int, int, int]]) -> None:
    """In the same order; and no two of them touch."""
    plan = [Range(epoch, start, start + count) for epoch, start, count in ranges]

    found = joined(plan)

    def places(ranges: list[Range]) -> list[tuple[int, int]]:
        return [(epoch, at) for epoch, start, stop in ranges for at in range(start, stop)]

    assert places(found) == places(plan)
    assert all((a.epoch, a.stop) != (b.epoch, b.start) for a, b in itertools.pairwise(found))


@given(sizes=_SIZES, samples=_SAMPLES)
def test_a_portion_ends_once_it_is_large_enough(sizes: list[int], samples: int) -> None:
    """
    Without its last step it would be too small.

    Only the last portion may be, and those at the start, of 1, 2, 4, ... steps.
    """
    portions = list(portions_of(_plan(sizes), samples))

    for number, (_, ranges) in enumerate(portions):
        counts = [where.stop - where.start for where in ranges]
        assert sum(counts[:-1]) < samples
        assert len(ranges) <= 2**number
        is_full = sum(counts) >= samples or len(ranges) == 2**number
        assert is_full or number == len(portions) - 1


def test_a_plan_is_cut_as_it_is_asked_for() -> None:
    """The plan of a run without an end is never computed ahead."""
    taken = 0

    def plan() -> Iterator[tuple[int, Range]]:
        nonlocal taken
        for number in itertools.count():
            taken += 1
            yield number, Range(0, number * 4, number * 4 + 4)

    portions = portions_of(plan(), 8)

    assert next(portions)[0] == [0]
    assert next(portions)[0] == [1, 2]
    assert next(portions)[0] == [3, 4]
    assert taken == 5


def test_ranges_are_samples_of_an_order() -> None:
    """Past the end of an epoch, a range goes on with the start of the same one."""
    order = ShuffledOrder([4, 3], seed=1)
    whole = order.take(2, 0, 7).ids.tolist()

    found = selections(order, [Range(2, 0, 3), Range(2, 5, 9), Range(2, 7, 7)])

    assert [each.ids.tolist() for each in found] == [whole[:3], whole[5:] + whole[:2], []]
