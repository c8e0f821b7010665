"""Where runs stand, as tables and as facts about one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from footplate.cli._output import print_json, print_table, table
from footplate.cli._sizes import size, thousands
from footplate.runs.state import Phase, RunState
from footplate.runs.text import duration

if TYPE_CHECKING:
    from rich.table import Table

    from footplate.runs.space import RunSpace

__all__ = ["print_end", "print_state", "print_states", "state_table"]


def print_states(states: Iterable[RunState], *, now: float, columns: Sequence[str]) -> None:
    """
    Print a table of runs.

    Args:
        now: Seconds since the epoch.
        columns: Of those below.
    """
    print_table(columns, _rows(states, now, columns))


def state_table(states: Iterable[RunState], *, now: float, columns: Sequence[str]) -> Table:
    """The same, to be shown live."""
    return table(columns, _rows(states, now, columns))


def _rows(
    states: Iterable[RunState], now: float, columns: Sequence[str]
) -> Iterator[Sequence[str]]:
    for state in states:
        cells = {
            "NAMESPACE": state.namespace,
            "NAME": state.name,
            # How many workers there are has a column of its own.
            "STATUS": f"{state.phase}" if state.phase is Phase.STARTING else state.summary,
            "WORKERS": f"{state.workers_ready}/{state.workers_wanted}",
            "AGE": duration(now - state.created) if state.created is not None else "",
            "UID": state.uid,
            "REASON": state.reason,
        }
        yield [cells[column] for column in columns]


def print_state(state: RunState, *, now: float, space: RunSpace | None = None) -> None:
    """
    Print the facts about one run.

    Args:
        now: Seconds since the epoch.
        space: What it takes in its store, if that is known.
    """
    rows = [
        ("run", f"{state.namespace}/{state.name} {state.uid}"),
        ("status", state.phase.value),
        ("", state.reason),
        ("workers", f"{state.workers_ready} of {state.workers_wanted} ready"),
    ]
    if state.attempt:
        rows.append(("attempt", str(state.attempt)))
        rows.append(("step", f"{state.step}" + f"/{state.total_steps}" * bool(state.total_steps)))
    rows += [(name, f"{value:.4f}") for name, value in sorted(state.metrics.items())]
    if state.checkpoint:
        rows.append(("checkpoint", state.checkpoint))
    if space:
        kept = thousands(len(space.counting), "checkpoint")
        rows.append(("store", f"{size(space.total)}, {kept}"))
    if state.mlflow:
        rows.append(("MLflow", state.mlflow))
    rows += [("note", message) for message in state.messages]
    if state.created is not None:
        rows.append(("age", duration(now - state.created)))
    width = max(len(label) for label, _ in rows) + 2
    for label, value in rows:
        click.echo(click.style(label.ljust(width), bold=True) + value)


def print_end(state: RunState, output: str) -> None:
    """
    Print how a run ended: a good end to standard output, a bad one beside it.

    Args:
        output: ``json`` for all of it; ``name`` for nothing on standard output.
    """
    if output == "json":
        print_json(state.to_dict())
    else:
        click.echo(state.reason, err=bool(state.exit_code) or output == "name")
