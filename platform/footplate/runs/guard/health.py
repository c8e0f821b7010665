"""Whether the guard still goes round, for the kubelet to ask over HTTP."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from footplate.errors import FootplateError

__all__ = ["Health"]

# Each request of a round has its own time limit and is repeated a few times; a round that takes
# longer than all of them hangs. Rounds that fail for so long may go well in a fresh process.
_PATIENCE_S = 180.0


class Health:
    """
    Answers ``/healthz``: 200 while the guard goes round, 503 once it hangs or its rounds fail.

    A cluster that cannot be reached is no reason to start the guard anew, so it does not count.

    Args:
        port: 0 for any free one; None for no server.
        patience_s: How long ago the last good round may be.

    Raises:
        FootplateError: If the port is taken.
    """

    def __init__(self, port: int | None, *, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._beat = time.monotonic()
        self._server = None if port is None else _server(self, port)

    def __enter__(self) -> Health:
        if self._server is not None:
            threading.Thread(
                target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
            ).start()
        return self

    def __exit__(self, *details: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    @property
    def port(self) -> int | None:
        """Where it is answered."""
        return None if self._server is None else self._server.server_address[1]

    def beat(self) -> None:
        """Another round went well."""
        self._beat = time.monotonic()

    def age_s(self) -> float:
        """Seconds since the last good round, or since the beginning."""
        return time.monotonic() - self._beat

    def is_good(self) -> bool:
        """Whether that is not too long ago."""
        return self.age_s() < self._patience_s


def _server(health: Health, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = 404 if self.path != "/healthz" else 200 if health.is_good() else 503
            body = f"the last good round was {health.age_s():.0f} s ago\n".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing: the log is for what the guard does."""

    try:
        return ThreadingHTTPServer(("", port), Handler)  # the kubelet asks from outside the pod
    except OSError as error:
        raise FootplateError(f"cannot listen on port {port}: {error.strerror}") from error
