"""A store in a folder, and a run in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.store import RunPaths, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(str(tmp_path / "store"))


@pytest.fixture
def run() -> RunPaths:
    """Where a run stands."""
    return RunPaths(namespace="local", name="digits", uid="uid-1")
