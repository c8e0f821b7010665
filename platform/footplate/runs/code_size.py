"""How much code may travel, and what to tell a person who would send more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["Limit", "too_much"]

_SHOWN = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """
    How much may travel.

    Attributes:
        size: Bytes of all files.
        files: How many.
    """

    size: int = 100 << 20
    files: int = 10_000


def too_much(files: Mapping[str, Path], limit: Limit | None = None) -> str | None:
    """
    Why this is too much, with what takes the most; None if it is not.

    Args:
        files: Name in the archive to file.
    """
    limit = limit or Limit()
    sizes = {name: path.stat().st_size for name, path in files.items() if path.is_file()}
    total = sum(sizes.values())
    if total <= limit.size and len(sizes) <= limit.files:
        return None
    lines = "".join(f"\n      {line}" for line in _biggest(sizes, limit))
    return (
        f"{_bytes(total)} in {len(sizes):,} files would travel, and at most {_bytes(limit.size)} "
        f"in {limit.files:,} files may. The biggest:{lines}\n"
        "    Name in .gitignore what the code does not need (if git has it: git rm --cached too), "
        "keep data in a bucket and packages in the image."
    )


def _biggest(sizes: Mapping[str, int], limit: Limit) -> list[str]:
    """Files and folders; of those that stand in one another, the one that tells the most."""
    size: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for name, own in sizes.items():
        for path in (name, *(f"{parent}/" for parent in _parents(name))):
            size[path] += own
            count[path] += 1

    def weight(path: str) -> float:
        return max(size[path] / max(limit.size, 1), count[path] / max(limit.files, 1))

    # Where one thing makes up most of a folder, the folder tells nothing more.
    told_by_one = {
        f"{parent}/"
        for path in size
        for parent in _parents(path)[:1]
        if 2 * weight(path) > weight(f"{parent}/")
    }
    named = sorted(size.keys() - told_by_one, key=lambda path: (-weight(path), path))[:_SHOWN]
    return [f"{_bytes(size[path]):>10}  {path}{_count(path, count[path])}" for path in named]


def _parents(path: str) -> list[str]:
    """The folders that a path stands in, nearest first."""
    return [str(parent) for parent in PurePosixPath(path).parents if parent.parts]


def _count(path: str, files: int) -> str:
    return f" ({files:,} files)" if path.endswith("/") else ""


def _bytes(number: int) -> str:
    size = float(number)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
