"""Bytes and counts, as people read them."""

from __future__ import annotations

__all__ = ["size", "thousands"]


def size(count: int) -> str:
    """``512 B``, ``1.5 GiB``."""
    if count < 1024:
        return f"{count} B"
    value, units = count / 1024, iter(("KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    for larger in units:
        if value < 1023.95:  # what would be printed as 1024.0
            break
        value, unit = value / 1024, larger
    return f"{value:,.1f} {unit}"


def thousands(number: int, what: str) -> str:
    """``1 file``, ``12,345 rows``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
