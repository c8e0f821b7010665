"""How often something happens: every so many steps, epochs, or seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

__all__ = ["Cadence", "CadenceField", "SaveCadenceField", "parse_cadence", "parse_save_cadence"]

_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_COUNTED = re.compile(r"(\d+)\s*(steps?|epochs?)")
_TIMED = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])")
_PATTERN = r"^\d+\s*(steps?|epochs?)$|^\d+(\.\d+)?\s*[smh]$"
_AUTO = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cadence:
    """
    An interval in one unit.

    Attributes:
        every: How many of the unit; positive.
        unit: Steps, epochs or seconds; or auto, for as often as is best: then ``every`` is 1.
        text: As the user wrote it.
    """

    every: float
    unit: Literal["steps", "epochs", "seconds", "auto"]
    text: str

    def __str__(self) -> str:
        return self.text


def parse_cadence(value: object) -> Cadence:
    """
    Read "500 steps", "1 epoch", "30s", "10m" or "2h".

    Raises:
        ValueError: For anything else, and for zero.
    """
    if isinstance(value, Cadence):
        return value
    text = str(value).strip()
    if counted := _COUNTED.fullmatch(text):
        unit: Literal["steps", "epochs"] = "steps" if "step" in counted[2] else "epochs"
        cadence = Cadence(every=int(counted[1]), unit=unit, text=text)
    elif timed := _TIMED.fullmatch(text):
        seconds = float(timed[1]) * _UNIT_SECONDS[timed[2]]
        cadence = Cadence(every=seconds, unit="seconds", text=text)
    else:
        raise ValueError(f"{text!r} is no interval; write '500 steps', '1 epoch', '30s' or '10m'")
    if cadence.every <= 0:
        raise ValueError(f"{text!r} is not a positive interval")
    return cadence


def parse_save_cadence(value: object) -> Cadence:
    """
    Read what :func:`parse_cadence` does, or "auto".

    Raises:
        ValueError: For anything else.
    """
    if isinstance(value, Cadence):
        return value
    if str(value).strip() == _AUTO:
        return Cadence(every=1, unit="auto", text=_AUTO)
    try:
        return parse_cadence(value)
    except ValueError as error:
        raise ValueError(f"{error}; or 'auto'") from None


CadenceField = Annotated[
    Cadence,
    BeforeValidator(parse_cadence),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _PATTERN}),
]

SaveCadenceField = Annotated[
    Cadence,
    BeforeValidator(parse_save_cadence),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": rf"^{_AUTO}$|{_PATTERN}"}),
]
