"""What all ranks are to do next besides training: rank 0 decides, and tells it in exchanges."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from footplate.store import StopRequest

__all__ = ["Departure", "Order", "Reason", "stop_order"]

Reason = Literal["interval", "preemption", "stop", "end", "request"]
"""Why a checkpoint is made; written in its manifest."""

# For what can't be foreseen, before machines go away.
_MARGIN_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """
    Something for all ranks to do at the end of a step.

    Attributes:
        ends: Training ends with it.
        detail: More about the reason, for people.
    """

    ends: bool
    reason: Reason
    detail: str = ""


def stop_order(request: StopRequest) -> Order:
    """What somebody wants who asks an attempt to end."""
    return Order(
        ends=True,
        reason="request" if request.kind == "resize" else "stop",
        detail=request.reason,
    )


class Departure:
    """
    What to do from the notice that machines go away until they do.

    Save at once, for a notice may be all there is; train on, for most of the time is left; save
    again as late as is safe, and leave: what waits for the machines gets them sooner.

    Args:
        clock: Seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._has_saved = False

    def order(
        self, deadline: float, reason: str, *, save_s: float, exchange_s: float
    ) -> Order | None:
        """
        What to do now, if anything.

        Args:
            deadline: When the machines are gone.
            reason: Which ones.
            save_s: How long a save takes.
            exchange_s: How long until there can be another order.
        """
        left_s = deadline - self._clock()
        # One save may be under way, which the last one has to wait for.
        is_last_chance = left_s <= _MARGIN_S + 2 * save_s + 2 * exchange_s
        if is_last_chance or not self._has_saved:
            self._has_saved = True
            return Order(ends=is_last_chance, reason="preemption", detail=reason)
        return None
