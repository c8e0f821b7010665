"""What all sections of a spec file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Section"]


class Section(BaseModel):
    """A table of the file: frozen, without unknown keys, and without guesses at types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
