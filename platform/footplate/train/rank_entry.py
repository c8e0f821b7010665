"""
Where Ray Train begins a rank.

The driver and Ray Train's controller import this as well, so it imports nothing that takes long.
"""

from __future__ import annotations

from typing import Any

from footplate.train.rank_config import RankConfig

__all__ = ["begin_rank"]


def begin_rank(values: dict[str, Any]) -> None:
    """Train, in this process, as the rank that is told so."""
    from footplate.train.rank import rank_main

    rank_main(RankConfig(**values))
