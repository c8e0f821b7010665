"""
Taking more workers into a training that goes on with fewer than it could.

The driver watches for room. Once there has been some for a while, the ranks are asked to save and
end, and the next attempt takes what is there: a change of the number of ranks is always a new
attempt, as it is after a failure.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

from footplate.errors import ObjectExistsError
from footplate.store import Progress, StopRequest, read_record_if_there, to_json
from footplate.train.attempt import Attempt
from footplate.train.background import in_background

__all__ = ["Growth", "ask_to_resize", "growing", "is_resize"]

log = logging.getLogger(__name__)

_LOOK_S = 5.0
_CLOSING_S = 10.0
# Pods that come may go again; what is there for so long, or a part of the time that training has
# between two changes, stays.
_SETTLED_S = 60.0
_SETTLED_SHARE = 0.2


class Growth:
    """
    Decides when training is to begin anew with more workers.

    Args:
        usable: The numbers that training can be done with, ascending.
        pods: How many it is done with; it has just begun.
        every_s: The least time between two changes.
        clock: Seconds.
    """

    def __init__(
        self,
        usable: Sequence[int],
        pods: int,
        *,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._usable = usable
        self._pods = pods
        self._every_s = every_s
        self._settled_s = min(_SETTLED_S, _SETTLED_SHARE * every_s)
        self._clock = clock
        self._began = clock()
        self._wanted = pods
        self._since = self._began

    @property
    def every_s(self) -> float:
        """The least time between two changes."""
        return self._every_s

    def look(self, there: int) -> int | None:
        """
        The number to go on with, if it is time to change it.

        Args:
            there: Worker pods that there is room on now, those in use included.
        """
        now = self._clock()
        wanted = max((pods for pods in self._usable if pods <= there), default=self._pods)
        if wanted != self._wanted:
            self._wanted, self._since = wanted, now
        if wanted <= self._pods or now - self._since < self._settled_s:
            return None
        return wanted if now - self._began >= self._every_s else None


def growing(
    attempt: Attempt, growth: Growth, count: Callable[[], int], *, look_s: float = _LOOK_S
) -> AbstractContextManager[None]:
    """
    Watch for room as long as the context lasts, and ask for what it is good for.

    Args:
        count: How many worker pods there is room on now.
        look_s: How often to look.
    """

    def watch(ended: threading.Event) -> None:
        while not ended.wait(look_s):
            if _looked(attempt, growth, count):
                return

    return in_background("growth", watch, closing_s=_CLOSING_S)


def ask_to_resize(attempt: Attempt, pods: int) -> None:
    """
    Ask the ranks to save and end, unless somebody has asked them to stop.

    Raises:
        StoreError: If the store does not take it.
    """
    reason = f"{pods} of {attempt.job.workers.count} workers can be had"
    request = StopRequest(kind="resize", reason=reason)
    with suppress(ObjectExistsError):
        attempt.store.create(attempt.paths.stop, to_json(request))
        attempt.note(f"{reason}: saves, and goes on with them")


def is_resize(attempt: Attempt) -> bool:
    """
    Whether an attempt that was stopped was to make room for more workers.

    Raises:
        StoreError: If the store does not tell.
    """
    request = read_record_if_there(attempt.store, attempt.paths.stop, StopRequest)
    return request is not None and request.kind == "resize"


def _looked(attempt: Attempt, growth: Growth, count: Callable[[], int]) -> bool:
    """Look once; whether there is nothing more to look for."""
    try:
        pods = growth.look(count())
        if pods is None or _ends_within(attempt, growth.every_s):
            return False
        ask_to_resize(attempt, pods)
    except Exception as error:  # of the store, or of Ray, which may be going away
        log.warning("whether there are more workers is not known: %s", error)
        return False
    return True


def _ends_within(attempt: Attempt, seconds: float) -> bool:
    """Whether training is done before more workers would have made up for the change."""
    progress = read_record_if_there(attempt.store, attempt.paths.progress, Progress)
    return progress is not None and progress.eta_s is not None and progress.eta_s < seconds
