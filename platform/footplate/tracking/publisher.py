"""The background thread of the driver that keeps MLflow up to date."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from footplate.errors import FencedError, FootplateError
from footplate.store import RunPaths, Store
from footplate.tracking.mlflow_run import RunStatus
from footplate.tracking.projection import Projection, PublishResult

__all__ = ["Publisher"]

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 60.0
# While closing: how often what fails is tried again, and when it is given up (failures from
# before the closing count, so that a dead server does not hold up the end of every run).
_CLOSING_WAIT_S = 0.5
_CLOSING_FAILURES = 3


class Publisher:
    """
    Follows the metric log and publishes to MLflow, in a thread of its own.

    Whatever happens to MLflow, neither training nor the end of the process waits for it:
    an outage is reported once and tried again at growing intervals, and what could not be sent
    is still in the log, for the next attempt or ``footplate tracking sync``.

    Args:
        attempt: The number that this driver has claimed.
        interval_s: Between two looks at the log.
        report: Takes a line for people: an outage began, or is over.
    """

    def __init__(
        self,
        store: Store,
        run: RunPaths,
        *,
        attempt: int,
        uri: str,
        experiment: str,
        interval_s: float = 2.0,
        report: Callable[[str], None] = _log.warning,
    ) -> None:
        self._projection = Projection(store, run, uri=uri, experiment=experiment, attempt=attempt)
        self._interval_s = interval_s
        self._report = report
        self._closing = threading.Event()
        self._status: RunStatus = "RUNNING"
        self._deadline = 0.0
        self._failures = 0
        self._error: str | None = None
        self._complete = False
        self._thread = threading.Thread(target=self._follow, name="tracking", daemon=True)

    def start(self) -> None:
        """Begin to publish; returns at once."""
        self._thread.start()

    def close(self, status: RunStatus, deadline_s: float = 30.0) -> PublishResult:
        """
        Publish the rest and the status, as far as that is possible in time.

        Never raises. Everything must have been flushed to the log before.

        Args:
            status: What MLflow shows from now on; ``RUNNING`` if another attempt follows.
            deadline_s: How long the caller waits at most.
        """
        self._status = status
        self._deadline = time.monotonic() + deadline_s
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(deadline_s)
        if self._complete:
            return self._projection.result(complete=True)
        error = self._error or f"MLflow did not take everything within {deadline_s:g} s"
        return self._projection.result(complete=False, error=error)

    def _follow(self) -> None:
        while (wait_s := self._step()) is not None:
            if self._closing.is_set():
                time.sleep(min(wait_s, _CLOSING_WAIT_S))
            else:
                self._closing.wait(wait_s)

    def _step(self) -> float | None:
        """Publish what is new; the seconds until the next step, or None after the last one."""
        # Asked before the log is read: what is flushed before the closing is then published.
        closing = self._closing.is_set()
        try:
            self._projection.advance()
            if closing:
                goes_on = self._status == "RUNNING"
                ended_ms = None if goes_on else int(time.time() * 1000)
                self._projection.set_status(self._status, ended_ms)
        except FencedError as error:
            self._error = error.message
            return None
        except Exception as error:  # Training never fails for what MLflow does.
            return self._failed(error, closing)
        if self._failures:
            self._report("tracking: MLflow answers again and is up to date")
        self._failures, self._error = 0, None
        self._complete = closing
        return None if closing else self._interval_s

    def _failed(self, error: Exception, closing: bool) -> float | None:
        reason = error.message if isinstance(error, FootplateError) else repr(error)
        self._failures += 1
        self._error = reason
        if self._failures == 1:
            what = "sent by footplate tracking sync" if closing else "sent when it answers again"
            goes_on = "" if closing else "; training goes on"
            self._report(f"tracking: {reason}{goes_on}; metrics are kept in the store and {what}")
        if not closing:
            return min(self._interval_s * 2.0 ** min(self._failures, 16), _LONGEST_WAIT_S)
        over = self._failures >= _CLOSING_FAILURES or time.monotonic() >= self._deadline
        return None if over else _CLOSING_WAIT_S
