"""The live view of runs in a cluster: on standard error, so that the result stands alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Self, Unpack

import click
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from footplate.cli._cluster import Where
from footplate.cli._notes import Notes
from footplate.cli._states import print_states, state_table
from footplate.cluster import Cluster, connect
from footplate.runs.finding import find_rayjob
from footplate.runs.handle import Run
from footplate.runs.looking import selections_of_many
from footplate.runs.observer import SilentObserver
from footplate.runs.state import Phase, RunState
from footplate.runs.text import duration
from footplate.runs.watching import Watching

__all__ = ["ManyView", "RunView", "show_many", "show_until_end"]

_INTERRUPTED = 130
_PLAIN_INTERVAL_S = 10.0
_COLUMNS = ("NAME", "STATUS", "WORKERS", "AGE", "REASON")


def show_until_end(run: Run, *, quiet: bool = False) -> RunState:
    """
    Show a run until it has ended.

    Args:
        quiet: Show nothing of it.

    Returns:
        How it ended.
    """
    try:
        if quiet:
            state = run.wait(observer=Notes())
        else:
            with RunView() as view:
                state = run.wait(on_state=view.show, observer=view)
        return state
    except KeyboardInterrupt:
        _detach(f"{run.name} goes on; footplate watch {run.name} -n {run.namespace} shows it")


def show_many(names: Sequence[str], selector: str, **where: Unpack[Where]) -> None:
    """
    Show runs until all of them have ended.

    Args:
        names: Left out: all of the namespace.
        selector: Only those with these labels.

    Raises:
        RunNotFoundError: If there is no run of one of the names.
    """
    cluster = connect(**where)
    for name in names:
        find_rayjob(cluster, name, cluster.namespace)
    try:
        shown = _follow(cluster, names, selector)
    except KeyboardInterrupt:
        _detach("the runs go on")
    if shown:
        print_states(shown, now=time.time(), columns=_COLUMNS)
    else:
        click.echo(f"no runs in namespace {cluster.namespace}", err=True)


def _follow(cluster: Cluster, names: Sequence[str], selector: str) -> Sequence[RunState]:
    chosen = selections_of_many(cluster.namespace, selector)
    with ManyView() as view, Watching(cluster, chosen, observer=view) as watching:
        for states in watching.states():
            shown = _wanted(states, names)
            view.show(shown)
            if all(state.is_terminal for state in shown):
                return shown
    raise AssertionError("nobody set a time")


def _wanted(states: Mapping[str, RunState], names: Sequence[str]) -> list[RunState]:
    wanted = (state for state in states.values() if not names or state.name in names)
    return sorted(wanted, key=lambda state: state.created or 0.0, reverse=True)


def _detach(text: str) -> NoReturn:
    # Below the ^C that a terminal shows.
    click.echo(f"{chr(10) * sys.stderr.isatty()}{text}", err=True)
    sys.exit(_INTERRUPTED)


class _View(SilentObserver):
    """
    What the views have in common.

    Args:
        console: Where to.
        clock: Seconds, for how long stages took and for the pace of plain lines.
    """

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False, emoji=False)
        self._clock = clock
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, transient=True, refresh_per_second=8)
        self._told: dict[str, tuple[Phase, str, float]] = {}

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_live:
            self._live.stop()

    def note(self, text: str) -> None:
        """Print a sentence above what is live."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _tell(self, state: RunState, prefix: str = "") -> None:
        """A line for each new stage at once; within a stage now and then."""
        phase, reason, at = self._told.get(state.uid, (None, "", 0.0))
        now = self._clock()
        is_due = state.phase != phase or now - at > _PLAIN_INTERVAL_S
        if is_due and (state.phase, state.reason) != (phase, reason):
            self._told[state.uid] = (state.phase, state.reason, now)
            self.note(f"{prefix}{_named(state)}")


class RunView(_View):
    """
    Shows one run: a line for each stage it has passed, and a live one for what it does now.

    How it ended is not shown: that is the result.
    """

    _phase: Phase | None = None
    _began = 0.0

    def show(self, state: RunState) -> None:
        """Show where it stands now."""
        if not self._is_live:
            if not state.is_terminal:
                self._tell(state)
            return
        if state.phase != self._phase:
            self._close_stage()
            self._phase, self._began = state.phase, self._clock()
        self._live.update(Text() if state.is_terminal else self._line(state))

    def _line(self, state: RunState) -> Table:
        line = Table.grid(padding=(0, 1))
        took = duration(self._clock() - self._began)
        line.add_row(Spinner("dots"), f"{state.phase.value:<10}", took, Text(state.reason))
        return line

    def _close_stage(self) -> None:
        if self._phase is not None:
            took = duration(self._clock() - self._began)
            self.note(f"✓ {self._phase.value:<10} {took:>6}")


class ManyView(_View):
    """Shows many runs: as a live table, or by a line for what is new of one."""

    def show(self, states: Sequence[RunState]) -> None:
        """Show where they stand now."""
        if self._is_live:
            self._live.update(state_table(states, now=time.time(), columns=_COLUMNS))
            return
        for state in states:
            self._tell(state, f"{state.name} ")


def _named(state: RunState) -> str:
    """The sentence, after the phase unless it begins with it."""
    phase = state.phase.value
    return state.reason if state.reason.startswith(phase) else f"{phase}: {state.reason}"
