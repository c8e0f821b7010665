"""Spans of time on the command line."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["SECONDS"]


class _Seconds(click.ParamType[float]):
    """``90s``, ``10m`` or ``2h``, in seconds."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from footplate.spec import parse_cadence

        if isinstance(value, float):
            return value
        try:
            cadence = parse_cadence(value)
        except ValueError:
            cadence = None
        if cadence is None or cadence.unit != "seconds":
            self.fail(f"{value!r} is no time; write '90s', '10m' or '2h'", param, ctx)
        return float(cadence.every)


SECONDS = _Seconds()
"""The type of such an option."""
