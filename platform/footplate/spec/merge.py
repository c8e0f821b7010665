"""Changing some keys of nested tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from footplate.errors import Problem, SpecError

__all__ = ["changed_keys", "merged", "parse_override"]


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with ``changes`` laid over them; tables are merged key by key."""
    result = dict(values)
    for key, change in changes.items():
        current = result.get(key)
        if isinstance(current, Mapping) and isinstance(change, Mapping):
            result[key] = merged(current, change)
        else:
            result[key] = change
    return result


def parse_override(text: str) -> dict[str, Any]:
    """
    ``"workers.count=1"`` as the table it stands for.

    The right side is read as TOML; what TOML does not know (``name=digits``) is taken as text.

    Raises:
        SpecError: Without an equals sign or a key.
    """
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise SpecError("--set", (Problem("", f"{text!r} is not of the form key=value"),))
    try:
        parsed: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for part in reversed(parts):
        parsed = {part: parsed}
    assert isinstance(parsed, dict)
    return parsed


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """
    Dotted keys whose values differ.

    Returns:
        Key to (old value, new value), in key order; ``None`` stands for a key that is not set.
    """
    changes: dict[str, tuple[Any, Any]] = {}
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            nested = changed_keys(before, after)
            changes.update({f"{key}.{inner}": change for inner, change in nested.items()})
        elif before != after:
            changes[key] = (before, after)
    return changes
