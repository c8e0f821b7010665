"""From a TOML file to a validated :class:`Job`, with all problems at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from footplate.errors import Problem, SpecError
from footplate.spec.lines import key_lines
from footplate.spec.merge import merged, parse_override
from footplate.spec.model import Job, without_shorthand

__all__ = ["load"]


def load(path: str | Path, overrides: Iterable[str] = ()) -> Job:
    """
    Read a spec file.

    Args:
        path: A TOML file.
        overrides: Changes such as ``"workers.count=1"``, as ``--set`` takes them.

    Raises:
        SpecError: With everything that is wrong with the file.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        values: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise SpecError(str(path), (Problem("", f"cannot be read: {error.strerror}"),)) from error
    except UnicodeDecodeError as error:
        raise SpecError(str(path), (Problem("", "is not text in UTF-8"),)) from error
    except tomllib.TOMLDecodeError as error:
        raise SpecError(str(path), (Problem("", f"is not valid TOML: {error}"),)) from error
    lines = key_lines(text)
    for override in overrides:
        changes = without_shorthand(parse_override(override))
        values = merged(without_shorthand(values), changes)
        # What --set wrote stands on no line of the file.
        lines[tuple(part.strip() for part in override.partition("=")[0].split("."))] = 0
    return Job.from_dict(values, folder=file.resolve().parent, source=str(path), lines=lines)
