"""How commands print: results to standard output, notes to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["print_json", "print_note", "print_table", "print_yaml", "table"]


def print_json(value: Any) -> None:
    """A value as indented JSON, for scripts."""
    click.echo(json.dumps(value, indent=2))


def print_yaml(value: Any) -> None:
    """A value as YAML."""
    import yaml

    click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip())


def print_note(text: str) -> None:
    """Something a person should know that is no part of the result."""
    click.echo(f"note: {text}", err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows under headings: folded to a terminal, never cut; elsewhere a row is a line."""
    from rich.console import Console

    cells = [[str(cell) for cell in row] for row in rows]
    # Names and messages are printed as they are, whatever brackets they contain.
    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        console.print(table(columns, cells))
    else:
        _print_lines([list(columns), *cells])


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """The same for a terminal, to be printed or shown live."""
    from rich.table import Table
    from rich.text import Text

    made = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for column in made.columns:
        column.overflow = "fold"
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def _print_lines(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(padded).rstrip())
