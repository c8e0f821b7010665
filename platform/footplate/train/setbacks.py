"""When training ends because its state can't be saved; pure."""

from __future__ import annotations

from collections.abc import Callable

from footplate.errors import CheckpointError, StoreError

__all__ = ["PAUSES_S", "Setbacks"]

PAUSES_S = (5.0, 30.0)
"""For how long training goes on before what has failed is tried again: once, and once more."""


class Setbacks:
    """
    Saves that have failed, one after the other.

    A store may be away for a moment, or full until something is removed. But nobody should train
    for days in the belief that it is saved: the third failure in a row ends training.

    Args:
        has_saved: The run has a checkpoint already, so its store is no wrong setting.
        clock: Seconds.
    """

    def __init__(self, *, has_saved: bool, clock: Callable[[], float]) -> None:
        self._has_saved = has_saved
        self._clock = clock
        self._failures = 0
        self._failed_at = 0.0
        self._is_final = False

    @property
    def pause_s(self) -> float | None:
        """How long after the last failure the next try is due; None if nothing has failed."""
        return PAUSES_S[min(self._failures, len(PAUSES_S)) - 1] if self._failures else None

    @property
    def is_retry_due(self) -> bool:
        """Whether it is time to try again."""
        pause_s = self.pause_s
        return pause_s is not None and self._clock() - self._failed_at >= pause_s

    @property
    def outlook(self) -> str:
        """What follows the last failure."""
        most = len(PAUSES_S) + 1
        if self._is_final or self._failures >= most:
            return "training ends for it"
        return f"it is tried again in {self.pause_s:g} s (failure {self._failures} of {most})"

    def saved(self) -> None:
        """Take note of a save that succeeded."""
        self._has_saved = True
        self._failures = 0

    def failed(self, error: BaseException, *, refused: bool) -> bool:
        """
        Take note of a save that failed.

        Args:
            refused: The store answered that it is not allowed.

        Returns:
            Whether training must end for it.
        """
        self._failures += 1
        self._failed_at = self._clock()
        is_refusal = refused and not self._has_saved
        self._is_final = is_refusal or not isinstance(error, (StoreError, CheckpointError))
        return self._is_final or self._failures > len(PAUSES_S)
