"""Waiting for what may never answer, but no longer than one cares to."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["within"]


def within(seconds: float, action: Callable[[], object]) -> bool:
    """
    Do something in a thread of its own and wait for it for a while.

    Args:
        action: Goes on in the background if it takes longer, until it or the process ends.

    Returns:
        Whether it is done.

    Raises:
        Exception: What the action raised in time.
    """
    errors: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            action()
        except BaseException as error:  # raised where somebody waits for it
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name="patience", daemon=True).start()
    in_time = done.wait(seconds)
    if in_time and errors:
        raise errors[0]
    return in_time
