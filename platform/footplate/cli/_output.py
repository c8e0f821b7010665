"""How commands print: results to standard output, notes to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

__all__ = ["print_json", "print_note", "print_table"]


def print_json(value: Any) -> None:
    """A value as indented JSON, for scripts."""
    click.echo(json.dumps(value, indent=2))


def print_note(text: str) -> None:
    """Something a person should know that is no part of the result."""
    click.echo(f"note: {text}", err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows under headings, for people; wide cells are folded, never cut."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    # Names and messages are printed as they are, whatever brackets they contain.
    Console(highlight=False, markup=False, emoji=False).print(table)
