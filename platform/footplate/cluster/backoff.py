"""How long to wait before something is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    """
    Growing waits, drawn at random so that many clients do not come back at once.

    Args:
        first_s: The first wait, in seconds; every further one may be twice as long.
        longest_s: No wait is longer.
        within_s: Nothing is tried again later than this after the first try.
    """

    first_s: float = 0.25
    longest_s: float = 4.0
    within_s: float = 10.0

    def wait_s(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row (at least one)."""
        bound = min(self.first_s * 2.0 ** min(failures - 1, 16), self.longest_s)
        return random.uniform(bound / 2, bound)  # noqa: S311 - no secret
