"""Before a run starts here it is made sure that nobody else is at it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from footplate.errors import RunBusyError
from footplate.runs import PastRun
from footplate.runs.local import refuse_if_busy_elsewhere
from footplate.store import AttemptResult, Claim, Progress, RunPaths, RunRecord, Store, to_json

NOW = 10_000.0
RUN = RunPaths(namespace="local", name="digits", uid="uid-1")
RECORD = RunRecord(uid="uid-1", namespace="local", name="digits", created=1.0, spec={})
ENDED = AttemptResult(status="failed", started=1.0, ended=2.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store that two machines share."""
    return Store(str(tmp_path))


def past(host: str, *, claimed: float, result: AttemptResult | None = None) -> PastRun:
    """A run with one attempt."""
    claim = Claim(attempt=1, token="1", host=host, pid=7, claimed=claimed, spec={})  # noqa: S106
    return PastRun(record=RECORD, claims=(claim,), result=result)


def report(store: Store, time: float) -> None:
    """Let the attempt have been heard of then."""
    store.put(RUN.attempt(1).progress, to_json(Progress(stage="training", time=time)))


def test_another_machine_at_work_is_left_alone(store: Store) -> None:
    """It would be fenced in the middle of its work: machine, process and time are told."""
    report(store, NOW - 30)
    with pytest.raises(RunBusyError, match="process 7 of elsewhere, heard of 30 s ago"):
        refuse_if_busy_elsewhere(past("elsewhere", claimed=NOW - 9000), store, now=NOW)
    report(store, NOW - 9030)
    with pytest.raises(RunBusyError, match="heard of 9030 s ago"):
        refuse_if_busy_elsewhere(
            past("elsewhere", claimed=NOW - 9030), store, now=NOW, silence_s=10_000
        )


@pytest.mark.parametrize(
    "run",
    [
        past("elsewhere", claimed=NOW - 9000),
        past("elsewhere", claimed=NOW - 10, result=ENDED),
        past(socket.gethostname(), claimed=NOW - 10),
        PastRun(record=RECORD, claims=(), result=None),
    ],
    ids=["silent for long", "ended", "this machine, whose lock is free", "never claimed"],
)
def test_what_is_dead_may_be_taken_over(store: Store, run: PastRun) -> None:
    """No sign of life, or an end, or our own lock says so."""
    refuse_if_busy_elsewhere(run, store, now=NOW)
