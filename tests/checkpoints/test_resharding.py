"""Training goes on with another number of ranks, or another layout of its state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_RANK = Path(__file__).with_name("resharding_rank.py")
_RANKS = 4


def test_state_is_handed_on_from_layout_to_layout(
    check_ranks: Callable[..., None], tmp_path: Path
) -> None:
    """From one rank to two and four with shares of it, to two with all of it, and back to one."""
    check_ranks(_RANK, _RANKS, str(tmp_path / "store"), f"{tmp_path}/meet")
