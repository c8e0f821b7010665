"""Finding the runs of a name in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from footplate.errors import RunNotFoundError, StoreError
from footplate.runs import find_runs, newest_run
from footplate.store import (
    AttemptResult,
    Claim,
    RunPaths,
    RunRecord,
    Store,
    claim_next,
    to_json,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(str(tmp_path / "runs"))


def _record(store: Store, uid: str, created: float, name: str = "digits") -> RunPaths:
    run = RunPaths(namespace="local", name=name, uid=uid)
    record = RunRecord(uid=uid, namespace="local", name=name, created=created, spec={"asked": uid})
    store.create(run.record, to_json(record))
    return run


def _claim(store: Store, run: RunPaths, number: int, **spec: Any) -> None:
    claim = Claim(attempt=number, token=run.uid, host="h", pid=1, claimed=1.0, spec=spec)
    claim_next(store, run, claim)


def _end(store: Store, run: RunPaths, number: int, status: str) -> None:
    values = {"status": status, "started": 1.0, "ended": 2.0}
    store.put(run.attempt(number).result, to_json(AttemptResult.model_validate(values)))


def test_runs_are_found_in_the_order_of_their_creation(store: Store) -> None:
    """Not in that of their random ids, and only those of the name."""
    for uid, created in (("b", 1.0), ("c", 3.0), ("a", 2.0)):
        _record(store, uid, created)
    _record(store, "d", 9.0, name="digits-2")
    assert [run.record.uid for run in find_runs(store, "local", "digits")] == ["b", "a", "c"]
    assert newest_run(store, "local", "digits").record.uid == "c"
    assert find_runs(store, "team", "digits") == []


def test_half_made_runs_are_ignored(store: Store) -> None:
    """What was killed before its record was written was never a run; nor is the lock."""
    store.put("local/digits/half/logs/attempt-0001.log", b"")
    store.put("local/digits/lock", b"1")
    assert find_runs(store, "local", "digits") == []
    run = _record(store, "whole", 1.0)
    found = newest_run(store, "local", "digits")
    assert found.paths == run
    assert found.claims == ()
    assert found.result is None
    assert not found.is_finished
    assert found.spec == {"asked": "whole"}


def test_without_a_run_it_says_how_to_start_one(store: Store) -> None:
    """The error names the store and the command."""
    with pytest.raises(RunNotFoundError, match=r"no run named digits in .*runs/local") as caught:
        newest_run(store, "local", "digits")
    assert "footplate run" in caught.value.hint


def test_the_newest_attempt_says_how_the_run_stands(store: Store) -> None:
    """A run that was finished, and then extended and killed, is unfinished."""
    run = _record(store, "uid-1", 1.0)
    _claim(store, run, 1, epochs=3)
    assert newest_run(store, "local", "digits").result is None
    _end(store, run, 1, "failed")
    assert not newest_run(store, "local", "digits").is_finished
    _claim(store, run, 2, epochs=3)
    _end(store, run, 2, "succeeded")
    assert newest_run(store, "local", "digits").is_finished
    _claim(store, run, 3, epochs=9)
    extended = newest_run(store, "local", "digits")
    assert not extended.is_finished
    assert extended.result is None
    assert [claim.attempt for claim in extended.claims] == [1, 2, 3]
    assert extended.spec == {"epochs": 9}
    _end(store, run, 3, "interrupted")
    assert not newest_run(store, "local", "digits").is_finished


def test_a_claim_that_was_never_completed_is_no_attempt(store: Store) -> None:
    """The result of the attempt before it still counts."""
    run = _record(store, "uid-1", 1.0)
    _claim(store, run, 1)
    _end(store, run, 1, "succeeded")
    assert store.folder is not None
    (store.folder / run.attempts / "0002").mkdir()
    assert newest_run(store, "local", "digits").is_finished


def test_a_damaged_record_is_named(store: Store) -> None:
    """It is not skipped: what it stood for would be started anew, silently."""
    run = _record(store, "uid-1", 1.0)
    store.put(run.record, b"{")
    with pytest.raises(StoreError, match=r"digits/uid-1/run\.json is no RunRecord"):
        find_runs(store, "local", "digits")
