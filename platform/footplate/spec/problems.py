"""What pydantic found wrong, in the words of the person who wrote the file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from footplate.errors import Problem
from footplate.spec.lines import line_of

__all__ = ["problems_of"]

Lines = Mapping[tuple[str, ...], int]


def problems_of(
    error: ValidationError, model: type[BaseModel], lines: Lines
) -> tuple[Problem, ...]:
    """
    Every problem once, in the order of the file.

    Args:
        error: Of validating a ``model``.
        model: The root model; its fields are the known keys.
        lines: Where the keys stand; may be empty.
    """
    problems = dict.fromkeys(_problem(detail, model, lines) for detail in error.errors())
    return tuple(sorted(problems, key=lambda problem: problem.line or 0))


def _problem(detail: ErrorDetails, model: type[BaseModel], lines: Lines) -> Problem:
    key = tuple(str(part) for part in detail["loc"] if part != "[key]")
    line = line_of(lines, key)
    where = ".".join(key)
    match detail["type"]:
        case "extra_forbidden":
            return Problem(where, f"unknown key{_nearest(model, key)}", line)
        case "missing":
            return Problem(where, "is required", line)
        case "value_error":
            return Problem(where, str(detail["ctx"]["error"]), line)
        case "string_pattern_mismatch":
            wanted = _description(model, key) or detail["ctx"]["pattern"]
            return Problem(where, f"{detail['input']!r} is not of the form wanted: {wanted}", line)
        case _:
            message = detail["msg"][:1].lower() + detail["msg"][1:].removesuffix(".")
            return Problem(where, f"{message}, not {detail['input']!r}", line)


def _nearest(model: type[BaseModel], key: tuple[str, ...]) -> str:
    known = sorted(_fields(model, key[:-1]))
    close = difflib.get_close_matches(key[-1], known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known here: {', '.join(known)}" if known else ""


def _description(model: type[BaseModel], key: tuple[str, ...]) -> str | None:
    if key[-1].isdigit():
        key = key[:-1]  # of a list's item its list tells
    field = _fields(model, key[:-1]).get(key[-1])
    return field.description if field else None


def _fields(model: type[BaseModel], table: tuple[str, ...]) -> dict[str, FieldInfo]:
    """The fields of the section that a table of the file is read into."""
    remaining = list(table)
    section = model
    while remaining:
        field = section.model_fields.get(remaining.pop(0))
        found = _section_of(field.annotation) if field else None
        if field is None or found is None:
            return {}
        if remaining and (get_origin(field.annotation) is dict or remaining[0].isdigit()):
            remaining.pop(0)  # in data.train the name is the user's own; in mix.0 it is a number
        section = found
    return section.model_fields


def _section_of(annotation: Any) -> type[BaseModel] | None:
    """The model inside ``Section``, ``Section | None``, ``dict[str, Section]`` or a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_section_of(argument) for argument in get_args(annotation))
    return next((section for section in found if section is not None), None)
