"""Versioned, platform-owned templates that specs only name."""

from footplate.runtimes.catalog import Runtime, find_runtime, list_runtimes

__all__ = ["Runtime", "find_runtime", "list_runtimes"]
