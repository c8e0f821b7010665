"""Places for processes that stand by: no more than there are, and free when who had one is gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from footplate.train.places import free, taken


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_place_is_had_once() -> None:
    """Those of another node, and for another purpose, are others."""
    first, second = (taken("rank", 2, node=7) for _ in range(2))
    assert first is not None
    assert second is not None
    assert taken("rank", 2, node=7) is None
    assert [free("rank", 2, node=7), free("rank", 2, node=8), free("controller", 3, node=7)] == [
        0,
        2,
        3,
    ]

    os.close(first)
    assert [free("rank", 2, node=7) for _ in range(2)] == [1, 1]  # counting takes none
    again = taken("rank", 2, node=7)
    assert again is not None
    for place in (second, again):
        os.close(place)
    assert free("rank", 2, node=7) == 2
