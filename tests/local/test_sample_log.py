"""Which samples a run trains on does not depend on how often it dies, or on how many ranks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from footplate.store import Store
from sample_log import assert_exact, logged_samples

if TYPE_CHECKING:
    from tests.local.conftest import Place

pytestmark = pytest.mark.local

_SPEC = "job/samplelog.toml"
_EPOCHS = 3
# Another number of ranks is another spec, so it has to be said.
_GO_ON = ("--continue",)
# Ranks of each attempt; all but the last are killed.
_WORLD_SIZES = (3, 1, 4)


def test_killed_with_changing_world_sizes(place: Place) -> None:
    """
    Killed at random steps and resumed with other numbers of ranks, the log of samples is exact.

    Each epoch has each sample once, in the order that an uninterrupted run on one rank has, though
    Ray Data's tasks carry them.
    """
    folder, manifest = place.recorder()
    settings = (
        f"data.train.manifest={manifest}",
        "data.train.map=['recorder:carried']",
        f"params.log={folder / 'samples'}",
        "params.pause_s=0.05",
        f"store.uri={place.runs}",
        f"limits.epochs={_EPOCHS}",
    )
    draw = random.Random(7)  # noqa: S311
    *killed, last = _WORLD_SIZES
    for attempt, ranks in enumerate(killed, start=1):
        _kill(place, settings, attempt=attempt, ranks=ranks, steps=draw.randrange(5, 25))
    finished = place.run(_SPEC, *settings, f"workers.count={last}", flags=_GO_ON)
    assert finished.exit_code == 0, finished.err
    assert finished.result["attempt"] == len(_WORLD_SIZES)
    assert_exact(logged_samples(Store(str(folder / "samples"))), seed=0, epochs=_EPOCHS)


def _kill(place: Place, settings: tuple[str, ...], *, attempt: int, ranks: int, steps: int) -> None:
    """Run with so many ranks, and kill it once it has made so many steps."""
    flags = _GO_ON if attempt > 1 else ()
    running = place.start(_SPEC, *settings, f"workers.count={ranks}", flags=flags)
    running.wait_for(
        f"{steps} steps with {ranks} ranks",
        lambda: place.is_training("samplelog", attempt, steps=steps),
    )
    running.kill()
