"""What a person is told who would send too much."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.runs.code_size import Limit, too_much


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A project with a big file, a folder of many small ones, and little else."""
    sizes = {"train.py": 2000, "data/raw/big.bin": 3 << 20}
    sizes |= {f"runs/log-{number:03d}.txt": 10 for number in range(200)}
    found = {name: tmp_path / name for name in sizes}
    for name, path in found.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * sizes[name])
    return found


def test_enough_room(files: dict[str, Path]) -> None:
    """Up to the limit, and at it."""
    size = sum(path.stat().st_size for path in files.values())
    assert too_much(files) is None
    assert too_much(files, Limit(size=size, files=len(files))) is None
    assert too_much(files, Limit(size=size - 1)) is not None
    assert too_much(files, Limit(files=len(files) - 1)) is not None


def test_the_biggest_come_first(files: dict[str, Path]) -> None:
    """By size where that is too much, and a folder is not named for one file in it."""
    what = too_much(files, Limit(size=1 << 20))
    assert what is not None
    first, *lines = what.splitlines()
    assert first == (
        "3.0 MiB in 202 files would travel, and at most 1.0 MiB in 10,000 files may. The biggest:"
    )
    assert lines[0].split() == ["3.0", "MiB", "data/raw/big.bin"]
    assert lines[1].split() == ["2.0", "KiB", "runs/", "(200", "files)"]
    assert "data/ " not in what
    assert lines[-1].startswith("    Name in .gitignore what the code does not need")


def test_many_files(files: dict[str, Path]) -> None:
    """By number where that is too much; ten lines are enough."""
    what = too_much(files, Limit(files=50))
    assert what is not None
    _, *lines, _ = what.splitlines()
    assert lines[0].split() == ["2.0", "KiB", "runs/", "(200", "files)"]
    assert len(lines) == 10
