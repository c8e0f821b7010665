"""Watching a driver from the process that started it."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.runs.driver_process import DriverProcess
from footplate.spec import Job
from footplate.store import Notes, Progress, RunPaths, RunRecord, Store, open_store, to_json

RUN = RunPaths(namespace="local", name="digits", uid="uid-1")


class Listener:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[int] = []

    def note(self, text: str) -> None:
        """Remember a sentence."""
        self.notes.append(text)

    def printed(self, line: str) -> None:
        """Nothing is printed here."""

    def started(self, run: RunPaths, attempt: int, log: Path) -> None:
        """Nothing starts here."""

    def progress(self, progress: Progress) -> None:
        """Remember how far it is."""
        self.steps.append(progress.step)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job with a store of its own."""
    spec = {"name": "digits", "entrypoint": "digits:train", "limits": {"epochs": 1}}
    return Job.from_dict(spec, folder=tmp_path, source="test")


@pytest.fixture
def store(job: Job) -> Store:
    """Its store."""
    return open_store(job)


@pytest.fixture
def listener() -> Listener:
    """Whoever watches."""
    return Listener()


@pytest.fixture
def process(job: Job, store: Store, listener: Listener) -> DriverProcess:
    """A driver that is not started: what is seen of one is in the store."""
    record = RunRecord(uid="uid-1", namespace="local", name="digits", created=1.0, spec={})
    return DriverProcess(job, record, store, 0, listener)


def say(store: Store, attempt: int, step: int) -> None:
    """Let an attempt have come so far."""
    progress = Progress(stage="training", time=1.0, step=step)
    store.put(RUN.attempt(attempt).progress, to_json(progress))


def test_a_store_that_does_not_answer_ends_nothing(
    process: DriverProcess, store: Store, listener: Listener, tmp_path: Path
) -> None:
    """It is said once, training goes on, and so does the view when the store is back."""
    store.put(RUN.attempt(1).progress, b"not what it should be")
    process.look(tmp_path)
    process.look(tmp_path)
    assert [note.partition(":")[0] for note in listener.notes] == ["cannot see how far it is"]
    say(store, 1, step=7)
    process.look(tmp_path)
    assert (listener.steps, len(listener.notes)) == ([7], 1)


def test_the_attempt_is_the_one_that_was_claimed(
    process: DriverProcess, store: Store, listener: Listener, tmp_path: Path
) -> None:
    """Another driver may have been faster: the number is learned, not guessed."""
    say(store, 1, step=1)
    say(store, 3, step=30)
    (tmp_path / "attempt").write_text("3")
    process.look(tmp_path)
    assert listener.steps == [30]


def test_every_note_is_handed_on_once(
    process: DriverProcess, store: Store, listener: Listener, tmp_path: Path
) -> None:
    """However often one looks."""
    for lines in (("first",), ("first", "second"), ("first", "second")):
        store.put(RUN.attempt(1).notes, to_json(Notes(lines=lines)))
        process.look(tmp_path)
    assert listener.notes == ["first", "second"]
