"""Training goes on with another number of ranks, or another layout of its state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_RANK = Path(__file__).with_name("resharding_rank.py")
_RANKS = 4
_TIMEOUT_S = 240


def test_state_is_handed_on_from_layout_to_layout(tmp_path: Path) -> None:
    """From one rank to two and four with shares of it, to two with all of it, and back to one."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(_RANK), str(rank), str(tmp_path / "store"), f"{tmp_path}/meet"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(_RANKS)
    ]
    try:
        said = [rank.communicate(timeout=_TIMEOUT_S)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * _RANKS, "\n".join(said)
