"""What a benchmark measures, and how it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Figure"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """
    One measured value and what it should be.

    Attributes:
        value: A ratio wherever there is a peer or a physical limit.
        target: What it should reach.
        better: Whether more or less of it is better.
    """

    name: str
    value: float
    target: float
    better: Literal["more", "less"]

    @property
    def is_met(self) -> bool:
        """Whether the target is reached."""
        return self.value >= self.target if self.better == "more" else self.value <= self.target

    def line(self, benchmark: str) -> str:
        """The last lines of a benchmark: ``render.specs_per_s 2500 2000 met``."""
        verdict = "met" if self.is_met else "short"
        return f"{benchmark}.{self.name} {self.value:.4g} {self.target:g} {verdict}"
