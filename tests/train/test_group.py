"""What ranks tell each other; a failure of one is a failure of all."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.errors import CheckpointError, DataError, FootplateError, TrainingError
from footplate.train.group import RankGroup


def test_one_rank_agrees_with_itself(alone: RankGroup) -> None:
    """With one rank nothing is sent, and everything works the same."""
    assert alone.is_first
    assert alone.gather("value") == ["value"]
    assert alone.agree(lambda: 5) == [5]
    assert alone.agree_on_first(lambda: 6) == 6


def test_one_rank_raises_its_own(alone: RankGroup) -> None:
    """An error of ours stays what it is; any other one is told with the rank."""

    def fail(error: Exception) -> Any:
        raise error

    with pytest.raises(CheckpointError, match="no room"):
        alone.agree(lambda: fail(CheckpointError("no room")))
    with pytest.raises(TrainingError, match="rank 0: KeyError: 'weight'"):
        alone.agree(lambda: fail(KeyError("weight")))


def test_results_come_in_rank_order(ranks: Any) -> None:
    """Every rank learns what all ranks have, in the order of the ranks."""

    def on_each(group: RankGroup) -> tuple[list[Any], list[Any], Any]:
        rank = group.rank
        return (
            group.gather({"rank": rank}),
            group.agree(lambda: rank * 10),
            group.agree_on_first(lambda: f"from {rank}"),
        )

    expected = ([{"rank": 0}, {"rank": 1}, {"rank": 2}], [0, 10, 20], "from 0")
    assert ranks.run(on_each) == [expected] * 3


def test_an_error_on_one_is_raised_on_all(ranks: Any) -> None:
    """Whichever rank fails, all raise the same error; of several, that of the lowest rank."""

    def caught(group: RankGroup, failing: dict[int, Exception]) -> tuple[str, str, str]:
        def act() -> None:
            if group.rank in failing:
                raise failing[group.rank]

        try:
            group.agree(act)
        except FootplateError as error:
            return type(error).__name__, error.message, error.hint
        return "nothing", "", ""

    def on_each(group: RankGroup) -> list[tuple[str, str, str]]:
        return [
            caught(group, {1: DataError("gone", "look")}),
            caught(group, {2: KeyError("weight")}),
            caught(group, {1: DataError("second"), 2: DataError("third")}),
            caught(group, {}),
        ]

    expected = [
        ("DataError", "gone", "look"),
        ("TrainingError", "rank 2: KeyError: 'weight'", ""),
        ("DataError", "second", ""),
        ("nothing", "", ""),
    ]
    assert ranks.run(on_each) == [expected] * 3


def test_an_error_on_the_first_is_raised_on_all(ranks: Any) -> None:
    """What only rank 0 does can fail everywhere, and nobody waits for it."""

    def on_each(group: RankGroup) -> str:
        def act() -> None:
            assert group.is_first
            raise CheckpointError("not committed")

        try:
            group.agree_on_first(act)
        except CheckpointError as error:
            return error.message
        return "nothing"

    assert ranks.run(on_each) == ["not committed"] * 3
