"""On which line of a TOML file a key stands (the standard library's reader does not say)."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["key_lines", "line_of"]

_KEY = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=(.*)")
_MULTILINE = re.compile(r"\"\"\"|'''")


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in re.findall(_KEY, dotted))


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """
    The line of every table header and every assignment, counted from 1.

    Lines inside multi-line strings are passed over. Keys inside inline tables have no entry
    of their own.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    closing: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if closing is not None:
            closing = None if closing in line else closing
        elif header := _TABLE.fullmatch(line.split("#")[0].rstrip()):
            table = _parts(header[1])
            lines.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            lines.setdefault(table + _parts(assignment[1]), number)
            quotes = _MULTILINE.findall(assignment[2])
            closing = quotes[0] if len(quotes) % 2 else None
    return lines


def line_of(lines: Mapping[tuple[str, ...], int], key: tuple[str, ...]) -> int | None:
    """
    The line where a key begins, or the nearest enclosing key that is in the file.

    A table without a header (``limits.epochs = 2``) begins with the first of its keys. A key
    with line 0 was set elsewhere and stands in no file.
    """
    for length in range(len(key), 0, -1):
        if lines.get(key[:length]) == 0:
            return None
        inside = [line for known, line in lines.items() if line and known[:length] == key[:length]]
        if inside:
            return min(inside)
    return None
