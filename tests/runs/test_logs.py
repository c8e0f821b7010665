"""Reading what a run printed, from its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.errors import RunNotFoundError, StoreError
from footplate.runs.logs import LogReader
from footplate.runs.observer import SilentObserver
from footplate.runs.store_view import StoreView
from footplate.store import Claim, RunRecord, Store, claim_next


class _Run(SilentObserver):
    """A run that prints into a store, and its end."""

    def __init__(self, folder: Path) -> None:
        spec = {
            "name": "digits",
            "command": ["true"],
            "store": {"uri": str(folder)},
        }
        self.record = RunRecord(uid="uid", namespace="team", name="digits", created=1.0, spec=spec)
        self._store = Store(str(folder))
        self._segments: dict[int, int] = {}
        self.has_ended = False
        self.notes: list[str] = []
        self._folder = folder

    def begins(self, attempt: int) -> None:
        """An attempt is claimed."""
        driver = f"driver-{attempt}"
        claim = Claim(attempt=attempt, token=driver, host="h", pid=1, claimed=1.0, spec={})
        claim_next(self._store, self.record.paths, claim)

    def prints(self, attempt: int, text: str) -> None:
        """Another segment of an attempt's log."""
        number = self._segments[attempt] = self._segments.get(attempt, 0) + 1
        self._store.put(self.record.paths.log_segment(attempt, number), text.encode())

    def note(self, text: str) -> None:
        """The reader says something that is no line of the log."""
        self.notes.append(text)

    def reader(self, *meanwhile: tuple[int, str] | str) -> LogReader:
        """What happens each time that the reader waits; then the run has ended."""
        coming = iter(meanwhile)

        def sleep(_: float) -> None:
            what = next(coming, None)
            if what is None:
                self.has_ended = True
                return
            if isinstance(what, str):
                self._goes("away" in what)
                return
            attempt, text = what
            if attempt not in self._segments:
                self.begins(attempt)
            self.prints(attempt, text)

        return LogReader(StoreView(self.record), lambda: self.has_ended, observer=self, sleep=sleep)

    def _goes(self, away: bool) -> None:
        """A file in place of a folder of the store is an error that may pass."""
        logs = self._folder / self.record.paths.root / "logs"
        aside = logs.with_name("aside")
        if away and not aside.exists():
            logs.rename(aside)
            logs.write_text("")
        elif not away:
            logs.unlink()
            aside.rename(logs)


@pytest.fixture
def run(tmp_path: Path) -> _Run:
    """A run whose first attempt has begun."""
    run = _Run(tmp_path)
    run.begins(1)
    return run


def test_one_attempt_has_no_heading(run: _Run) -> None:
    """A run that was never interrupted reads like the output of a program."""
    run.prints(1, "one\ntwo\n")
    assert list(run.reader().lines()) == ["one", "two"]


def test_a_line_over_two_segments_is_one_line(run: _Run) -> None:
    """Where the text was cut for the store does not show; a last line without an end does."""
    run.prints(1, "one\ntw")
    run.prints(1, "o\nthr")
    assert list(run.reader().lines()) == ["one", "two", "thr"]


def test_following_goes_over_attempts_to_the_end(run: _Run) -> None:
    """What comes meanwhile is printed once, each attempt under its heading if it is not alone."""
    run.prints(1, "one\n")
    reader = run.reader((1, "two\n"), (2, "again\n"), (2, "done\n"))
    assert list(reader.lines(follow=True)) == [
        "one",
        "two",
        "--- attempt 2 ---",
        "again",
        "done",
    ]


def test_what_came_before_the_end_is_not_lost(run: _Run) -> None:
    """A run that ended between two looks is read once more."""
    run.has_ended = True
    run.prints(1, "last words\n")
    assert list(run.reader().lines(follow=True)) == ["last words"]


def test_tail_counts_what_is_there_already(run: _Run) -> None:
    """The last lines of what is there, and everything that comes."""
    run.prints(1, "".join(f"{number}\n" for number in range(100)))
    assert list(run.reader().lines(tail=2)) == ["98", "99"]
    assert list(run.reader((1, "new\n")).lines(follow=True, tail=1)) == ["99", "new"]


def test_an_attempt_alone(run: _Run) -> None:
    """Without heading; one that has not printed is empty."""
    run.prints(1, "one\n")
    run.begins(2)
    run.prints(2, "two\n")
    run.begins(3)
    assert list(run.reader().lines(attempt=2)) == ["two"]
    assert list(run.reader().lines(attempt=3)) == []


@pytest.mark.parametrize(
    ("attempts", "there"),
    [(0, "is none yet"), (1, "is attempt 1 alone"), (3, "are attempts 1 to 3")],
)
def test_an_attempt_that_is_not_there(tmp_path: Path, attempts: int, there: str) -> None:
    """It is an error that says which there are, also for who would wait for it."""
    run = _Run(tmp_path)
    for number in range(1, attempts + 1):
        run.begins(number)
    with pytest.raises(RunNotFoundError, match=f"digits has no attempt 9: there {there}$"):
        list(run.reader().lines(attempt=9, follow=True))


def test_a_line_that_was_cut_off_stays_where_it_was(run: _Run) -> None:
    """The unfinished last line of an attempt comes before the next attempt, and in the tail."""
    run.prints(1, "one\ncut o")
    run.begins(2)
    run.prints(2, "two\nend")
    whole = ["--- attempt 1 ---", "one", "cut o", "--- attempt 2 ---", "two", "end"]
    assert list(run.reader().lines()) == whole
    for count in range(7):
        assert list(run.reader().lines(tail=count)) == whole[len(whole) - count :]


def test_an_attempt_that_was_cut_off_while_it_is_followed(run: _Run) -> None:
    """What it had begun to print is shown when the next one begins."""
    run.prints(1, "one\ncut o")
    assert list(run.reader((2, "again\n")).lines(follow=True, tail=1)) == [
        "one",
        "cut o",
        "--- attempt 2 ---",
        "again",
    ]


def test_a_store_that_is_away_for_a_while(run: _Run) -> None:
    """Whoever follows is told once, and misses nothing."""
    run.prints(1, "one\n")
    reader = run.reader("away", "away", "back", (1, "two\n"))
    assert list(reader.lines(follow=True)) == ["one", "two"]
    assert [note.partition(":")[0] for note in run.notes] == [
        "no logs for now",
        "the store answers again",
    ]


def test_a_store_that_is_away_at_the_end(run: _Run) -> None:
    """That the last lines are missing is an error, and no end."""
    run.prints(1, "one\n")
    lines = run.reader("away").lines(follow=True)
    assert next(lines) == "one"
    with pytest.raises(StoreError):
        next(lines)
