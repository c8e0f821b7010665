"""How many rows may be replaced because they cannot be read, and which were."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from footplate.errors import DataError

__all__ = ["SkipBudget"]


class SkipBudget:
    """
    Counts damaged row groups, each once and with all of its rows, whatever is taken of it.

    So the count depends on the data alone, and on which of it has been read: what others have met
    is to be counted, too.

    Args:
        rows: That may be replaced.
        on_skip: Called with the name of a row group and its rows when it is counted.
    """

    def __init__(self, rows: int, *, on_skip: Callable[[str, int], None] | None = None) -> None:
        self._rows = rows
        self._on_skip = on_skip
        self._skipped: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def skipped(self) -> Mapping[str, int]:
        """Rows of the row groups that were replaced, by their names."""
        with self._lock:
            return dict(self._skipped)

    def spend(self, name: str, rows: int, error: DataError) -> None:
        """
        Count a row group that cannot be read.

        Raises:
            DataError: If that is more than may be replaced; names every one of them.
        """
        with self._lock:
            if name in self._skipped:
                return
            skipped = {**self._skipped, name: rows}
            if not self._rows:
                raise error
            if sum(skipped.values()) > self._rows:
                raise self._exceeded(skipped, f"{error.message}\n") from error
            self._skipped = skipped
        if self._on_skip is not None:
            self._on_skip(name, rows)

    def count(self, skipped: Mapping[str, int]) -> None:
        """
        Count what others have met: rows by the names of row groups.

        Raises:
            DataError: If that is more than may be replaced; names every one of them.
        """
        with self._lock:
            self._skipped = {**self._skipped, **skipped}
            if sum(self._skipped.values()) > self._rows:
                raise self._exceeded(self._skipped)

    def _exceeded(self, skipped: Mapping[str, int], newest: str = "") -> DataError:
        lines = "\n".join(f"  {name}: {rows} rows" for name, rows in skipped.items())
        return DataError(
            f"{newest}{sum(skipped.values())} rows cannot be read, and {self._rows} may "
            f"be replaced:\n{lines}",
            "Restore these files, or allow more with skip_rows.",
        )
