"""What the Kubernetes client says of credentials only in its log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["logged_errors"]


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """
    The errors that the Kubernetes client logs meanwhile.

    It logs that a credential plugin fails, and goes on as nobody, or with a token that has
    expired. Without any other handler the message would also be printed, in the middle of
    whatever is on the screen.
    """
    collector = _Collector(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(collector)
    try:
        yield collector.messages
    finally:
        root.removeHandler(collector)


class _Collector(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.module == "kube_config":
            self.messages.append(record.getMessage())
