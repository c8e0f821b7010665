"""What a client sees of a run in its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.errors import SpecError, StoreError
from footplate.runs.store_view import StoreView, job_of, newest_attempt
from footplate.store import AttemptResult, Claim, Progress, RunRecord, Store, claim_next, to_json


def _record(folder: Path, **more: object) -> RunRecord:
    spec = {"name": "digits", "command": ["true"], "store": {"uri": str(folder)}, **more}
    return RunRecord(uid="uid", namespace="team", name="digits", created=1.0, spec=spec)


def _begin(store: Store, record: RunRecord, attempt: int) -> None:
    driver = f"driver-{attempt}"
    claim = Claim(attempt=attempt, token=driver, host="h", pid=1, claimed=1.0, spec={})
    claim_next(store, record.paths, claim)


def _report(store: Store, record: RunRecord, attempt: int, step: int) -> None:
    progress = Progress(stage="training", time=1.0, step=step, total_steps=9)
    store.put(record.paths.attempt(attempt).progress, to_json(progress))


def test_the_newest_attempt_counts(tmp_path: Path) -> None:
    """What an earlier attempt still writes is not where the run stands."""
    record, store = _record(tmp_path), Store(str(tmp_path))
    view = StoreView(record)
    assert view.look().attempt == 0
    for attempt in (1, 2):
        _begin(store, record, attempt)
        _report(store, record, attempt, step=attempt)
    _report(store, record, 1, step=8)
    sight = view.look()
    assert sight.progress is not None
    assert (sight.attempt, sight.progress.step, sight.trouble) == (2, 2, None)
    assert newest_attempt(store, record.paths, known=1) == 2


def test_a_cancelled_run_is_seen_as_such(tmp_path: Path) -> None:
    """Also before its first attempt."""
    record, store = _record(tmp_path), Store(str(tmp_path))
    store.put(record.paths.cancelled, b"{}")
    assert StoreView(record).look().cancelled


def test_what_was_seen_stays_while_the_store_is_away(tmp_path: Path) -> None:
    """An outage is said, and takes nothing away that was known."""
    record, store = _record(tmp_path), Store(str(tmp_path))
    _begin(store, record, 1)
    _report(store, record, 1, step=5)
    view = StoreView(record)
    before = view.look()
    store.put(record.paths.attempt(1).progress, b"not a record")
    after = view.look()
    assert (after.progress, after.attempt) == (before.progress, 1)
    assert after.trouble
    _report(store, record, 1, step=6)
    assert view.look().trouble is None


def test_a_spec_of_another_version_is_no_obstacle(tmp_path: Path) -> None:
    """Of a newer run only where its store is has to be understood."""
    record, store = _record(tmp_path, colour="red"), Store(str(tmp_path))
    _begin(store, record, 1)
    _report(store, record, 1, step=5)
    sight = StoreView(record).look()
    assert (sight.attempt, sight.trouble) == (1, None)
    with pytest.raises(SpecError, match="colour"):
        job_of(record)


def test_a_store_that_is_not_understood_is_a_trouble_not_an_end(tmp_path: Path) -> None:
    """One strange run in a namespace must not break the view of all others."""
    view = StoreView(_record(tmp_path, store={"uri": 5}))
    assert view.look().trouble
    with pytest.raises(StoreError):
        view.open()


def test_one_unreadable_record_hides_no_other(tmp_path: Path) -> None:
    """How a run ended is seen, whatever has become of its progress."""
    record, store = _record(tmp_path), Store(str(tmp_path))
    _begin(store, record, 1)
    paths = record.paths.attempt(1)
    store.put(paths.progress, b'{"stage": 5}')
    store.put(paths.result, to_json(AttemptResult(status="succeeded", started=1, ended=2, steps=9)))
    sight = StoreView(record).look()
    assert sight.result is not None
    assert (sight.attempt, sight.result.steps, sight.progress) == (1, 9, None)
    assert "progress.json" in (sight.trouble or "")


def test_what_another_attempt_said_is_not_said_of_this_one(tmp_path: Path) -> None:
    """An unreadable record of a new attempt is no reason to show that of the last."""
    record, store = _record(tmp_path), Store(str(tmp_path))
    view = StoreView(record)
    _begin(store, record, 1)
    _report(store, record, 1, step=5)
    view.look()
    _begin(store, record, 2)
    store.put(record.paths.attempt(2).progress, b"not a record")
    assert (view.look().attempt, view.sight.progress) == (2, None)


def test_a_folder_that_is_not_here_is_not_made(tmp_path: Path) -> None:
    """Whoever looks at a run leaves nothing on their machine, and learns that it is elsewhere."""
    view = StoreView(_record(tmp_path / "elsewhere"))
    assert "not there" in (view.look().trouble or "")
    assert (view.failures, list(tmp_path.iterdir())) == (1, [])
    assert not view.is_seen_since(0.0)
