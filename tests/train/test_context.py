"""What the context refuses, in words that say what to do instead; nothing here needs Ray."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from footplate.errors import UserCodeError


def test_a_context_knows_its_run(place: Any) -> None:
    """What a training function may ask is there before the first batch."""
    ctx = place.attempt(params={"lr": 0.5, "model": {"width": 3}})

    assert ctx.params == {"lr": 0.5, "model": {"width": 3}}
    assert (ctx.seed, ctx.rank, ctx.local_rank, ctx.world_size) == (3, 0, 0, 1)
    assert (ctx.step_number, ctx.total_steps, ctx.epoch) == (0, 15, 0)
    assert ctx.device == torch.device("cpu")
    assert ctx.checkpoint is None


def test_the_last_step_is_the_smaller_limit(place: Any) -> None:
    """Epochs and steps limit a run together."""
    assert place.attempt(limits={"max_steps": 7}).total_steps == 7
    assert place.attempt(limits={"max_steps": 700}).total_steps == 15


def test_a_model_alone_is_not_wrapped(place: Any) -> None:
    """With one rank the prepared model is the model."""
    model = nn.Linear(1, 1)

    assert place.attempt().prepare(model) is model


def test_a_step_is_made_in_the_loop(place: Any) -> None:
    """A step without a batch is refused."""
    with pytest.raises(UserCodeError, match=r"ctx\.step was called outside a ctx\.batches loop"):
        place.attempt().step(loss=1.0)


def test_an_unknown_event_is_refused(place: Any) -> None:
    """A misspelt event would never be due; the known ones are said."""
    with pytest.raises(UserCodeError, match="knows evaluate, not 'evaluation'"):
        place.attempt().due("evaluation")


def test_nothing_is_due_before_the_first_step(place: Any) -> None:
    """What happens every so many steps does not happen at step 0."""
    assert not place.attempt().due("evaluate")


def test_only_training_data_comes_in_batches(place: Any) -> None:
    """Other data sets are for evaluation, which is said."""
    with pytest.raises(UserCodeError, match=r"takes 'train', not 'valid'") as caught:
        next(place.attempt().batches("valid"))
    assert "ctx.evaluate" in caught.value.hint


def test_an_unknown_data_set_is_refused(place: Any) -> None:
    """A data set that the spec does not have is named, with those that it has."""
    with pytest.raises(UserCodeError, match="no data set 'test'; it has train, valid"):
        place.attempt().evaluate(lambda _: {"loss": 0.0}, data="test")


def test_odd_objects_are_not_tracked(place: Any) -> None:
    """What can't be saved is refused when it is tracked."""
    with pytest.raises(UserCodeError, match="params is a dict"):
        place.attempt().track(params={"lr": 1})


def test_a_function_that_does_nothing_has_not_trained(place: Any) -> None:
    """Returning without a batch is a mistake, not a success."""
    ctx = place.attempt()

    with pytest.raises(UserCodeError, match="without having taken a batch"):
        ctx.finish()
    assert ctx.checkpoint is None
