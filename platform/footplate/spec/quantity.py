"""Kubernetes quantities: the grammar of "4", "500m", "1.5Gi"."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

__all__ = ["QuantityField", "parse_quantity"]

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_SUFFIXES = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{prefix}i": Decimal(1024) ** power for power, prefix in enumerate("KMGTPE", start=1)},
    **{suffix: Decimal(1000) ** -power for power, suffix in enumerate("mun", start=1)},
}
_GRAMMAR = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?")


def parse_quantity(text: str) -> Decimal:
    """
    The number that a quantity stands for.

    Args:
        text: For example ``"1.5Gi"`` (1610612736), ``"400m"`` (0.4) or ``"1e9"``.

    Raises:
        ValueError: If the text is not in the grammar, e.g. ``"1K"`` or the empty text.
    """
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no Kubernetes quantity; write for example '4', '500m', '8Gi'"
        )
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""]


def _checked(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("a quantity is a number or a text such as '8Gi'")
    text = str(value)
    if parse_quantity(text) <= 0:
        raise ValueError(f"{text!r} is not positive")
    return text


QuantityField = Annotated[
    str, BeforeValidator(_checked), WithJsonSchema({"type": ["string", "number"]})
]
