"""What is told while the files of a data set are read."""

from __future__ import annotations

__all__ = ["ReadProgress"]


class ReadProgress:
    """Hears how far the files are; this one keeps it to itself. Called from several threads."""

    def started(self, files: int, size: int) -> None:
        """So many files with so many bytes will be read."""

    def read(self, size: int) -> None:
        """So many more bytes were read."""

    def finished(self, path: str) -> None:
        """A file is done."""
