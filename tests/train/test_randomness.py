"""Random generators go on exactly where they were."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.checkpoints.tree import join, split
from footplate.train import randomness


def _drawn() -> tuple[list[float], ...]:
    """Numbers of every generator; odd counts, so that Gaussian ones leave a spare behind."""
    return (
        [random.uniform(0, 1) for _ in range(3)],  # noqa: S311
        [random.gauss(0, 1) for _ in range(3)],
        np.random.random(3).tolist(),
        np.random.normal(size=3).tolist(),
        torch.rand(3).tolist(),
        torch.randn(17).tolist(),
    )


@pytest.fixture(autouse=True)
def _left_alone() -> None:
    randomness.seed_everything(1)


@settings(max_examples=30)
@given(used=st.integers(0, 5))
def test_restored_goes_on(used: int) -> None:
    """What was drawn after the capture is drawn again, bit for bit, by every generator."""
    for _ in range(used):
        _drawn()
    state = randomness.capture()
    expected = [_drawn(), _drawn()]
    _drawn()

    randomness.restore(state)

    assert [_drawn(), _drawn()] == expected


def test_a_stored_state_is_as_good() -> None:
    """The state survives being stored as a checkpoint is."""
    _drawn()
    tree, tensors = split(randomness.capture(), "random/")
    stored, kept = json.dumps(tree), {name: each.clone() for name, each in tensors.items()}
    expected = _drawn()

    randomness.restore(join(json.loads(stored), kept))

    assert _drawn() == expected


def test_forked_leaves_no_trace() -> None:
    """What is drawn inside is as if it had not been, also when it ends in an error."""
    state = randomness.capture()
    expected = _drawn()
    randomness.restore(state)

    with randomness.forked():
        _drawn()
    _fail_after_drawing()

    assert _drawn() == expected


def _fail_after_drawing() -> None:
    with suppress(KeyError), randomness.forked():
        _drawn()
        raise KeyError


_PARTS = st.tuples(*[st.integers(0, 2**32 - 1)] * 3)


@settings(max_examples=50)
@given(one=_PARTS, other=_PARTS)
def test_seeds_differ_by_every_part(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    """The same parts begin the same numbers in every generator, and others begin others."""
    drawn = []
    for parts in (one, other, one):
        randomness.seed_everything(*parts)
        drawn.append(_drawn())

    assert drawn[0] == drawn[2]
    for first, second in zip(drawn[0], drawn[1], strict=True):
        assert (first == second) is (one == other)


def test_ranks_and_restarts_draw_differently() -> None:
    """The seeds of the model, of each rank, and of each rank that joins later are all different."""
    seen = []
    for parts in ((7,), (7, 1, 0), (7, 2, 0), (7, 1, 50), (7, 2, 50), (8,), (8, 1, 0)):
        randomness.seed_everything(*parts)
        seen.append(_drawn())

    assert all(seen.count(drawn) == 1 for drawn in seen)


def test_any_seed_of_a_spec_works() -> None:
    """A spec allows seeds up to 2**63 - 1."""
    randomness.seed_everything(2**63 - 1, 1000, 10**9)
