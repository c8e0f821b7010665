"""What can go wrong with the test cluster itself."""

from __future__ import annotations

__all__ = ["SetupError"]


class SetupError(Exception):
    """The machine lacks something, or a part of the cluster did not do as it should."""
