"""How the guard learns in the store of a run what its driver asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.errors import StoreError
from footplate.runs.guard.wishes import Lookout
from footplate.runs.guard.world import NewCluster
from footplate.store import Claim, Progress, Request, RunPaths, Store, claim_next, to_json

RUN = RunPaths(namespace="team", name="digits", uid="u-1")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A folder."""
    return Store(str(tmp_path / "store"))


def _claim(store: Store, attempt: int) -> None:
    claim = Claim(attempt=attempt, token=str(attempt), host="h", pid=1, claimed=1.0, spec={})
    claim_next(store, RUN, claim)


def _progress(store: Store, attempt: int, step: int) -> None:
    progress = Progress(stage="training", time=1.0, step=step, total_steps=9, epoch=0)
    store.put(RUN.attempt(attempt).progress, to_json(progress))


def _ask(store: Store, attempt: int, reason: str) -> None:
    request = Request(kind="new_cluster", reason=reason, time=1.0)
    store.put(RUN.attempt(attempt).request, to_json(request))


def test_the_newest_attempt_counts(store: Store) -> None:
    """What an older one asked for is settled by the newer one, which has another cluster."""
    lookout = Lookout(store, RUN)
    assert lookout.look() is None
    _claim(store, 1)
    assert lookout.look() is None
    _ask(store, 1, "broken")
    assert lookout.look() == NewCluster(1, "broken")
    _claim(store, 2)
    assert lookout.look() is None
    _ask(store, 2, "broken again")
    assert lookout.look() == NewCluster(2, "broken again")
    assert Lookout(store, RUN).look() == NewCluster(2, "broken again")


def test_a_run_that_moves_is_not_looked_into(store: Store) -> None:
    """Its driver has better things to do than to ask; one small request tells."""
    _claim(store, 1)
    lookout = Lookout(store, RUN)
    assert lookout.look() is None
    _ask(store, 1, "broken")
    _progress(store, 1, 10)
    assert lookout.look() is None
    _progress(store, 1, 20)
    assert lookout.look() is None
    assert lookout.look() == NewCluster(1, "broken")


def test_what_is_asked_for_is_one_line(store: Store) -> None:
    """It is printed, and whoever writes to the store could make it look like words of the guard."""
    _claim(store, 1)
    _ask(store, 1, "broken\n\x1b[2K2026-01-31T14:05:00Z all is well " + "x" * 5000)
    wish = Lookout(store, RUN).look()
    assert wish is not None
    assert wish.reason.isprintable()
    assert len(wish.reason) < 500


@pytest.mark.parametrize("record", ["request", "progress"])
def test_a_record_that_is_too_big_is_not_read(store: Store, record: str) -> None:
    """Whoever writes to the store could fill the memory of the guard."""
    _claim(store, 1)
    lookout = Lookout(store, RUN)
    assert lookout.look() is None
    store.put(getattr(RUN.attempt(1), record), b" " * (2**20 + 1))
    with pytest.raises(StoreError, match="1048577 bytes"):
        lookout.look()


def test_a_request_that_makes_no_sense_is_an_error(store: Store) -> None:
    """A word that this guard does not know is none that it may guess."""
    _claim(store, 1)
    store.put(RUN.attempt(1).request, b'{"kind": "more_money", "reason": "x", "time": 1}')
    with pytest.raises(StoreError, match="Request"):
        Lookout(store, RUN).look()
