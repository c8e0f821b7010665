"""A step that leaves samples as they are, so that Ray Data's tasks carry the rows."""

from __future__ import annotations

from footplate.data.columns import Columns
from footplate.data.source import SampleKeys

__all__ = ["unchanged"]


def unchanged(columns: Columns, _: SampleKeys) -> Columns:
    """The same samples."""
    return columns
