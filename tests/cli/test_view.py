"""What is shown of runs in a cluster while one looks on."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from footplate.cli._states import print_state, print_states
from footplate.cli._view import ManyView, RunView
from footplate.runs.state import Phase, RunState

QUEUED = "waiting for 2 of cpu, behind textlm"
STORY = (
    (Phase.QUEUED, QUEUED),
    (Phase.STARTING, "pods are starting: workers 0/2"),
    (Phase.STARTING, "pods are starting: workers 1/2"),
    (Phase.TRAINING, "training 10/300, loss 2.1000"),
    (Phase.TRAINING, "training 20/300, loss 2.0000"),
    (Phase.SUCCEEDED, "succeeded after step 300, loss 0.1000"),
)


def _state(phase: Phase, reason: str, name: str = "digits", **more: Any) -> RunState:
    known: dict[str, Any] = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "created": 1000.0,
    }
    return RunState(phase=phase, reason=reason, **known | more)


class _Screen:
    """A terminal, or none, and the time that passes on it."""

    def __init__(self, *, terminal: bool) -> None:
        self._file = io.StringIO()
        self.now = 1000.0
        self.console = Console(
            file=self._file, force_terminal=terminal, width=100, highlight=False, color_system=None
        )

    def clock(self) -> float:
        """Seconds."""
        return self.now

    @property
    def text(self) -> str:
        """All that was ever written."""
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        """The same, by lines."""
        return self.text.splitlines()


@pytest.fixture
def plain() -> _Screen:
    """A file or a pipe."""
    return _Screen(terminal=False)


@pytest.fixture
def terminal() -> _Screen:
    """A terminal."""
    return _Screen(terminal=True)


def test_a_log_gets_a_line_for_each_stage(plain: _Screen) -> None:
    """What changes within a stage is not worth a line before ten seconds have passed."""
    with RunView(plain.console, clock=plain.clock) as view:
        for phase, reason in STORY:
            view.show(_state(phase, reason))
            plain.now += 1
    assert plain.lines == [
        f"queued: {QUEUED}",
        "starting: pods are starting: workers 0/2",
        "training 10/300, loss 2.1000",
    ]
    assert "\x1b" not in plain.text


def test_a_terminal_shows_what_it_does_now(terminal: _Screen) -> None:
    """The newest sentence, and for how long it has been at this stage."""
    with RunView(terminal.console, clock=terminal.clock) as view:
        for phase, reason in STORY[:5]:
            view.show(_state(phase, reason))
            terminal.now += 30
    assert "training   30s training 20/300, loss 2.0000" in terminal.text


def test_a_log_goes_on_within_a_long_stage(plain: _Screen) -> None:
    """Now and then, and only if there is something new."""
    with RunView(plain.console, clock=plain.clock) as view:
        for step in range(0, 60, 2):
            view.show(_state(Phase.TRAINING, f"training {step}/300"))
            plain.now += 1
        for _ in range(60):
            view.show(_state(Phase.TRAINING, "training 58/300"))
            plain.now += 1
    assert plain.lines == [
        "training 0/300",
        "training 22/300",
        "training 44/300",
        "training 58/300",
    ]


def test_a_terminal_keeps_the_stages_that_are_over(terminal: _Screen) -> None:
    """Each with the time that it took; how it ended is the result, and printed as such."""
    with RunView(terminal.console, clock=terminal.clock) as view:
        for phase, reason in STORY:
            view.show(_state(phase, reason))
            terminal.now += 30
    kept = [line for line in terminal.lines if "✓" in line]
    assert [line.partition("✓ ")[2].split() for line in kept] == [
        ["queued", "30s"],
        ["starting", "1m00s"],
        ["training", "1m00s"],
    ]


@pytest.mark.parametrize("view", [RunView, ManyView])
def test_what_is_said_meanwhile_stays(terminal: _Screen, view: Callable[..., Any]) -> None:
    """A cluster that goes away is said above what is live, with its brackets."""
    with view(terminal.console, clock=terminal.clock) as shown:
        shown.note("cannot reach [::1]; what is shown may be old")
    assert "cannot reach [::1]; what is shown may be old" in terminal.text


def test_a_log_of_many_tells_what_is_new_of_each(plain: _Screen) -> None:
    """With the name before it, and nothing of those that are as they were."""
    first = _state(Phase.QUEUED, QUEUED, "a")
    with ManyView(plain.console, clock=plain.clock) as view:
        view.show([first, _state(Phase.TRAINING, "training 1/9", "b")])
        view.show([first, _state(Phase.SUCCEEDED, "succeeded after step 9", "b")])
    assert plain.lines == [
        f"a queued: {QUEUED}",
        "b training 1/9",
        "b succeeded after step 9",
    ]


def test_a_terminal_shows_many_as_a_table(terminal: _Screen) -> None:
    """Under headings, the reason whole."""
    with ManyView(terminal.console, clock=terminal.clock) as view:
        view.show([_state(Phase.QUEUED, QUEUED, "a"), _state(Phase.TRAINING, "training", "b")])
    assert "REASON" in terminal.text
    assert QUEUED in terminal.text


def test_a_table_has_the_columns_that_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Each state in its row, a step or an exit code beside its phase."""
    states = [
        _state(Phase.TRAINING, "t", "a", step=120, total_steps=600, workers_ready=2),
        _state(Phase.STARTING, "s", "b", workers_ready=1, workers_wanted=2),
        _state(Phase.FAILED, "f", "c", exit_code=10),
        _state(Phase.SUCCEEDED, "done", "d", exit_code=0, created=None),
    ]
    print_states(states, now=1075.0, columns=("NAME", "STATUS", "WORKERS", "AGE"))
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "STATUS", "WORKERS", "AGE"],
        ["a", "training", "120/600", "2/0", "1m15s"],
        ["b", "starting", "1/2", "1m15s"],
        ["c", "failed", "(10)", "0/0", "1m15s"],
        ["d", "succeeded", "0/0"],
    ]


def test_the_facts_of_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that is known, and no line for what is not."""
    state = _state(
        Phase.TRAINING,
        "training 120/600",
        attempt=2,
        step=120,
        total_steps=600,
        workers_ready=2,
        workers_wanted=2,
        metrics={"loss": 0.25},
        checkpoint="step-00000100.a0001",
        messages=("the queue is busy",),
    )
    print_state(state, now=1061.0)
    assert capsys.readouterr().out.splitlines() == [
        "run         team/digits uid-digits",
        "status      training",
        "            training 120/600",
        "workers     2 of 2 ready",
        "attempt     2",
        "step        120/600",
        "loss        0.2500",
        "checkpoint  step-00000100.a0001",
        "note        the queue is busy",
        "age         1m01s",
    ]
    print_state(_state(Phase.QUEUED, QUEUED, created=None), now=0.0)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "run",
        "status",
        "waiting",
        "workers",
    ]
