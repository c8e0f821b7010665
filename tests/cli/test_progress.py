"""What a run shows while it trains."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from footplate.cli._progress import LiveProgress, describe
from footplate.store import Progress, RunPaths

RUN = RunPaths(namespace="local", name="digits", uid="uid-1")


class _Screen:
    """What a run shows, where it is no terminal or is one, and the time it believes in."""

    def __init__(self, *, terminal: bool) -> None:
        self._file = io.StringIO()
        self.now = 1000.0
        self.console = Console(
            file=self._file, force_terminal=terminal, width=120, highlight=False, color_system=None
        )
        self.live = LiveProgress(self.console, clock=lambda: self.now)

    def show(self, stage: Any, **values: Any) -> None:
        self.live.progress(Progress(stage=stage, time=self.now, **values))

    @property
    def text(self) -> str:
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@pytest.fixture
def plain() -> _Screen:
    """A file or a pipe."""
    return _Screen(terminal=False)


@pytest.fixture
def terminal() -> _Screen:
    """A terminal."""
    return _Screen(terminal=True)


def test_plain_lines_tell_each_phase_once(plain: _Screen) -> None:
    """A log holds a line for what begins, and no control characters."""
    with plain.live:
        for stage in ("preparing", "preparing", "starting", "starting", "training", "training"):
            plain.show(stage)
            plain.now += 0.2
        plain.show("finishing", step=10, total_steps=10)
    assert plain.lines == [
        "preparing data",
        "starting Ray and the workers",
        "training",
        "finishing step 10/10",
    ]


def test_plain_lines_keep_their_pace(plain: _Screen) -> None:
    """Looking several times a second gives a line every ten seconds."""
    with plain.live:
        for tick in range(500):
            plain.show("training", step=tick, total_steps=500)
            plain.now += 0.2
    times = [int(line.split()[2].partition("/")[0]) * 0.2 for line in plain.lines]
    assert len(times) == 10
    assert times[0] == 0
    assert all(10 <= later - sooner < 11 for sooner, later in pairwise(times))


def test_what_comes_and_goes_is_not_worth_a_line(plain: _Screen) -> None:
    """Evaluating and saving between steps do not fill the log, unless they take long."""
    with plain.live:
        for _ in range(10):
            for stage in ("training", "evaluating", "training", "saving"):
                plain.show(stage, step=5, total_steps=9)
                plain.now += 0.2
        assert plain.lines == ["training step 5/9"]
        plain.now += 11
        plain.show("saving", step=5, total_steps=9)
    assert plain.lines[1:] == ["saving a checkpoint step 5/9"]


def test_plain_lines_carry_the_numbers(plain: _Screen) -> None:
    """Step, loss, speed and time left, as far as known."""
    with plain.live:
        plain.show(
            "training",
            step=5,
            total_steps=9,
            metrics={"loss": 0.25},
            samples_per_s=1234.4,
            eta_s=185.0,
        )
    assert plain.lines == ["training step 5/9 loss 0.2500  1,234 samples/s  ETA 3m05s"]


def test_a_terminal_shows_a_bar(terminal: _Screen) -> None:
    """The stage, how far it is and the numbers, and nothing of it stays behind."""
    with terminal.live:
        terminal.show("training", step=5, total_steps=9, metrics={"loss": 0.25}, samples_per_s=10.0)
    assert "training" in terminal.text
    assert "5/9" in terminal.text
    assert "loss 0.2500  10 samples/s" in terminal.text
    assert "━" in terminal.text
    assert terminal.text.endswith("\x1b[2K")  # the bar's line is erased


def test_a_terminal_shows_a_stage_without_steps(terminal: _Screen) -> None:
    """Before the number of steps is known there is still something to see."""
    with terminal.live:
        terminal.show("preparing")
    assert "preparing data" in terminal.text


@pytest.mark.parametrize("kind", [False, True], ids=["plain", "terminal"])
def test_notes_are_whole_sentences_above_the_bar(kind: bool) -> None:
    """Neither folded nor taken for markup, however long."""
    screen = _Screen(terminal=kind)
    note = "the spec changed: params.x [bold]1[/bold] -> [2], " + "path/" * 60
    with screen.live:
        screen.live.note(note)
    assert note in screen.text


def test_the_start_of_an_attempt_names_the_run_and_its_log(plain: _Screen) -> None:
    """And says if it is not the first."""
    with plain.live:
        plain.live.started(RUN, 1, Path("/runs/log"))
        plain.live.started(RUN, 2, Path("/runs/log"))
    assert plain.lines == [
        "digits uid-1; log: /runs/log",
        "digits uid-1, attempt 2; log: /runs/log",
    ]


def test_the_display_ends_with_an_error_too(terminal: _Screen) -> None:
    """The cursor comes back, and the error goes on."""

    def fail() -> None:
        with terminal.live:
            terminal.show("training", step=1, total_steps=2)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")


def test_by_default_it_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """So that standard output is the result alone."""
    with LiveProgress() as live:
        live.note("a note")
        live.progress(Progress(stage="training", time=1.0))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a note" in captured.err
    assert "training" in captured.err


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, ""),
        ({"metrics": {"accuracy": 0.5}}, ""),
        ({"metrics": {"loss": 12.34567}}, "loss 12.3457"),
        ({"metrics": {"loss": float("nan")}}, "loss nan"),
        ({"samples_per_s": 0.0}, ""),
        ({"samples_per_s": 1234567.8}, "1,234,568 samples/s"),
        ({"eta_s": 0.2}, "ETA 0s"),
        ({"eta_s": 61.0, "samples_per_s": 3.0}, "3 samples/s  ETA 1m01s"),
    ],
)
def test_only_known_numbers_are_described(values: dict[str, Any], text: str) -> None:
    """What is not known yet is left out."""
    assert describe(Progress(stage="training", time=1.0, **values)) == text


def test_a_run_that_is_finishing_has_no_time_left() -> None:
    """The estimate was for the last step, which is done."""
    assert describe(Progress(stage="finishing", time=1.0, eta_s=5.0)) == ""
