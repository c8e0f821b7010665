"""Whether a run is over, as far as its store tells: nothing may be removed on a guess."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from footplate.runs.history import PastRun, newest_run
from footplate.runs.inventory import stored_runs
from footplate.runs.lock import is_locked, lock_file
from footplate.runs.standing import ABANDONED_S, LONG_SILENCE_S, State, judge, standing_of
from footplate.store import (
    AttemptResult,
    Claim,
    Progress,
    RunRecord,
    Store,
    claim_next,
    to_json,
)

NOW = 1_000_000.0

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def _past(
    *, claimed_ago: float | None = 50_000.0, status: str | None = None, goes_on: bool = False
) -> PastRun:
    record = RunRecord(uid="u", namespace="team", name="digits", created=NOW - 10**6, spec={})
    claims: tuple[Claim, ...] = ()
    if claimed_ago is not None:
        claims = (_claim(NOW - claimed_ago),)
    result = None
    if status is not None:
        values = {"status": status, "started": 1.0, "ended": NOW - 40.0, "goes_on": goes_on}
        result = AttemptResult.model_validate(values)
    return PastRun(record=record, claims=claims, result=result)


def _claim(claimed: float, **values: Any) -> Claim:
    fields = {"attempt": 1, "token": "t", "host": "elsewhere", "pid": 1, "spec": {}} | values
    return Claim.model_validate(fields | {"claimed": claimed})


def _judged(
    past: PastRun,
    *,
    heard_ago: float | None = None,
    cancelled: bool = False,
    lock: bool | None = None,
) -> tuple[State, bool]:
    progress = None if heard_ago is None else Progress(stage="training", time=NOW - heard_ago)
    found = judge(past, progress=progress, is_cancelled=cancelled, has_lock=lock, now=NOW)
    assert found.why
    return found.state, found.is_over


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("succeeded", State.SUCCEEDED),
        ("failed", State.FAILED),
        ("interrupted", State.STOPPED),
    ],
)
def test_an_end_that_is_written_down_is_one(status: str, state: State) -> None:
    """Unless another attempt follows by itself, which is heard of some time."""
    assert _judged(_past(status=status)) == (state, True)
    assert _judged(_past(status=status), cancelled=True) == (State.CANCELLED, True)
    assert _judged(_past(status=status, goes_on=True)) == (State.RUNNING, False)


def test_a_lock_here_says_all() -> None:
    """Held, a process works on the run; free, none does."""
    assert _judged(_past(), lock=True) == (State.RUNNING, False)
    assert _judged(_past(), lock=False) == (State.KILLED, True)
    assert _judged(_past(claimed_ago=None), lock=False) == (State.KILLED, True)


def test_what_is_heard_of_is_running_whatever_the_lock_says() -> None:
    """It may be a machine that has the same folder, or a container of the same host name."""
    assert _judged(_past(), heard_ago=1.0, lock=False) == (State.RUNNING, False)
    assert _judged(_past(), heard_ago=299.0, lock=False) == (State.RUNNING, False)
    assert _judged(_past(), heard_ago=301.0, lock=False) == (State.KILLED, True)


def test_silence_proves_something_only_after_long() -> None:
    """A job in a queue or a suspended one says nothing for hours, and goes on then."""
    assert _judged(_past(), heard_ago=10.0) == (State.RUNNING, False)
    assert _judged(_past(claimed_ago=10.0)) == (State.RUNNING, False)
    assert _judged(_past(), heard_ago=3600.0) == (State.SILENT, False)
    long_ago = LONG_SILENCE_S + 1
    assert _judged(_past(claimed_ago=long_ago), heard_ago=long_ago) == (State.SILENT, True)
    assert _judged(_past(claimed_ago=10.0), heard_ago=long_ago) == (State.RUNNING, False)
    assert _judged(_past(), heard_ago=-30.0) == (State.RUNNING, False)


@pytest.mark.parametrize(
    ("ago", "over", "may_go_on"),
    [(10.0, False, True), (LONG_SILENCE_S + 1, True, True), (ABANDONED_S + 1, True, False)],
)
def test_what_waits_for_days_may_go_on(ago: float, over: bool, may_go_on: bool) -> None:
    """Nobody writes any more, but what a suspended run would go on from is needed for long."""
    past = _past(claimed_ago=0.0)
    found = judge(past, progress=None, is_cancelled=False, has_lock=None, now=NOW + ago)
    assert (found.is_over, found.may_go_on) == (over, may_go_on)


def test_a_cancelled_run_may_still_be_saving() -> None:
    """For some minutes; after that it does not come back."""
    assert _judged(_past(), heard_ago=10.0, cancelled=True) == (State.RUNNING, False)
    assert _judged(_past(), heard_ago=3600.0, cancelled=True) == (State.CANCELLED, True)


def _stored(store: Store, namespace: str, **claim: Any) -> PastRun:
    record = RunRecord(uid="u", namespace=namespace, name="digits", created=1.0, spec={})
    store.put(record.paths.record, to_json(record))
    claim_next(store, record.paths, _claim(time.time(), **claim))
    return newest_run(store, namespace, "digits")


def test_a_process_that_trains_here_is_seen_by_its_lock(tmp_path: Path) -> None:
    """From its start to its end, without ever holding the lock oneself."""
    store = Store(str(tmp_path))
    past = _stored(store, "local")
    path = lock_file(store, "local", "digits")
    assert is_locked(path) is False
    assert is_locked(path, missing=None) is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_locked(path)
        assert standing_of(store, past, now=time.time()).state is State.RUNNING
        holder.stdin.close()
    assert is_locked(path) is False
    later = time.time() + 400
    assert standing_of(store, past, now=later).state is State.KILLED
    path.unlink()
    assert standing_of(store, past, now=later).state is State.KILLED


def test_a_lock_that_cannot_be_seen_proves_nothing(tmp_path: Path) -> None:
    """Of another user; or of a bucket's run in another container, which has no file here."""
    store = Store(str(tmp_path))
    past = _stored(store, "local")
    path = lock_file(store, "local", "digits")
    path.symlink_to(path)  # opening it fails, and not because it is absent
    assert is_locked(path) is None
    assert standing_of(store, past, now=time.time() + 400).state is State.SILENT


def test_a_cluster_whose_namespace_is_called_local_has_no_lock_here(tmp_path: Path) -> None:
    """Its runs are judged by what is heard of them."""
    store = Store(str(tmp_path))
    past = _stored(store, "local", cluster="raycluster-1", host=os.uname().nodename)
    assert standing_of(store, past, now=time.time()).state is State.RUNNING


def test_runs_are_found_in_every_namespace(tmp_path: Path) -> None:
    """And what stands beside them is none."""
    store = Store(str(tmp_path))
    for namespace in ("local", "team"):
        _stored(store, namespace)
    store.put("code/abc.zip", b"")
    store.put("datasets/numbers/abc/run.json", b"")
    store.put("team/half/uid/logs/attempt-0001.log", b"")
    found = stored_runs(store, now=time.time())
    assert {run.paths.root for run in found} == {"local/digits/u", "team/digits/u"}
    assert len(stored_runs(store, now=time.time(), namespace="team")) == 1
