"""
A web page in a cluster at an address of this machine.

Every request gets headers that authenticate it on its way, so that the browser needs no token
and never sees one. What comes through here is therefore trusted there: only this machine can
connect, and no web site that happens to be open in the same browser gets through
(:mod:`~footplate.cluster.same_origin`).
"""

from __future__ import annotations

import html
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, InvalidURL
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from footplate.cluster.same_origin import LOOPBACK, refusal
from footplate.errors import ClusterError

__all__ = ["LocalProxy", "Upstream"]

_BLOCK = 65536
_RELOAD_S = 2
_POLL_S = 0.1
_REPEATABLE = {"GET", "HEAD", "OPTIONS"}

_CONNECTION = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
# A browser sends the cookies of 127.0.0.1 to all of its ports, those of other programs too.
_NOT_SENT = _CONNECTION | {"authorization", "cookie", "expect"}
_NOT_RETURNED = _CONNECTION | {"set-cookie"}

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title></head>
<body style="font-family: sans-serif; margin: 4em auto; max-width: 40em">
<h1>{title}</h1>
<p>{text}</p>
{more}</body>
</html>
"""
_RELOADING = f"""<p>This page loads itself again.</p>
<script>setTimeout(() => location.reload(), {_RELOAD_S * 1000})</script>
"""


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """
    A server in the cluster.

    Attributes:
        connect: Opens a connection to it.
        headers: Are set on every request; they may hold secrets.
    """

    connect: Callable[[], socket.socket]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class LocalProxy:
    """
    Serves an upstream at an address of this machine, while it is entered.

    Requests that have begun are finished with the upstream that they began with.

    Args:
        port: To listen on; 0 for a free one.
        waiting: What a browser shows until there is an upstream.

    Raises:
        OSError: If the port is taken.
    """

    def __init__(self, port: int = 0, *, waiting: str = "") -> None:
        self._server = _Server(port, waiting)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="proxy", daemon=True
        )

    def __enter__(self) -> LocalProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.end_requests()

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{LOOPBACK}:{self._server.port}"

    def serve(self, target: Upstream | str) -> None:
        """From now on pass requests on to an upstream, or answer with why there is none."""
        self._server.target = target


class _Server(ThreadingTCPServer):
    # Not an HTTPServer: that looks its own name up in the DNS, which may take seconds.
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, waiting: str) -> None:
        self.target: Upstream | str = waiting
        self._open: set[_Handler] = set()
        self._lock = threading.Lock()
        super().__init__((LOOPBACK, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def began(self, handler: _Handler) -> None:
        with self._lock:
            self._open.add(handler)

    def ended(self, handler: _Handler) -> None:
        with self._lock:
            self._open.discard(handler)

    def end_requests(self) -> None:
        with self._lock:
            handlers = list(self._open)
        for handler in handlers:
            handler.end()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that leaves in the middle of an answer is no error, nor is a lost cluster.
        if not isinstance(sys.exception(), OSError | HTTPException | ClusterError):
            super().handle_error(request, client_address)


class _Connection(HTTPConnection):
    """HTTP over a connection that somebody else opens; opened again after it was closed."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__("upstream")
        self.upstream = upstream
        self.link: socket.socket | None = None

    def connect(self) -> None:
        self.link = self.sock = self.upstream.connect()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, and the one to the upstream that its requests go over."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._connection: _Connection | None = None
        self.server.began(self)

    def finish(self) -> None:
        self.server.ended(self)
        if self._connection is not None:
            self._connection.close()
        super().finish()

    def end(self) -> None:
        _shut(self.connection)
        if self._connection is not None:
            _shut(self._connection.link)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Nothing is logged: the terminal belongs to the command that runs this."""

    def _answer_request(self) -> None:
        target = self.server.target
        why = refusal(self.command, self.path, self.headers, port=self.server.port)
        if why is not None:
            self._answer(HTTPStatus.FORBIDDEN, why)
        elif self.request_version != "HTTP/1.1" or not self.path.startswith("/"):
            self._answer(HTTPStatus.BAD_REQUEST, "Only HTTP/1.1 is served, and only from here.")
        elif "Transfer-Encoding" in self.headers:
            self._answer(HTTPStatus.LENGTH_REQUIRED, "A request must say how long it is.")
        elif isinstance(target, str):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, target)
        else:
            self._pass_on(target)

    do_GET = do_HEAD = do_OPTIONS = do_POST = do_PUT = do_PATCH = do_DELETE = _answer_request  # noqa: N815

    def _answer(self, status: HTTPStatus, text: str) -> None:
        """A page of our own; the connection ends, for the request may not have been read."""
        is_temporary = status is HTTPStatus.SERVICE_UNAVAILABLE
        page = _PAGE.format(
            title="Not there at the moment" if is_temporary else status.phrase,
            text=html.escape(text),
            more=_RELOADING if is_temporary else "",
        ).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        if is_temporary:
            self.send_header("Retry-After", str(_RELOAD_S))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    def _pass_on(self, upstream: Upstream) -> None:
        try:
            connection, response = self._ask(upstream)
        except (InvalidURL, ValueError) as error:
            self._answer(HTTPStatus.BAD_REQUEST, f"Not a request: {error}")
        except (ClusterError, HTTPException, OSError) as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"No answer yet: {error}")
        else:
            self._return(connection, response)

    def _ask(self, upstream: Upstream) -> tuple[_Connection, HTTPResponse]:
        """Send the request; over the connection of the last one where that is possible."""
        connection = self._connection
        # It may be closed by now, and not every request may be sent twice.
        is_repeatable = self.command in _REPEATABLE and not self._body_size()
        if connection is None or connection.upstream is not upstream or not is_repeatable:
            if connection is not None:
                connection.close()
            connection = self._connection = _Connection(upstream)
        is_kept = connection.sock is not None
        try:
            return connection, self._send(connection)
        except (HTTPException, OSError, ValueError):
            connection.close()
            if not is_kept:
                raise
        return connection, self._send(connection)

    def _send(self, connection: _Connection) -> HTTPResponse:
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        secret = {name.lower() for name in connection.upstream.headers}
        for name, value in self.headers.items():
            if name.lower() not in _NOT_SENT | secret:
                connection.putheader(name, value)
        if protocol := self.headers.get("Upgrade"):
            connection.putheader("Connection", "Upgrade")
            connection.putheader("Upgrade", protocol)
        for name, value in connection.upstream.headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        for block in self._body():
            connection.send(block)
        return connection.getresponse()

    def _body_size(self) -> int:
        return int(self.headers.get("Content-Length", 0))

    def _body(self) -> Iterator[bytes]:
        left = self._body_size()
        while left > 0:
            block = self.rfile.read(min(left, _BLOCK))
            if not block:
                raise ConnectionResetError("the client left in the middle of its request")
            left -= len(block)
            yield block

    def _return(self, connection: _Connection, response: HTTPResponse) -> None:
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in _NOT_RETURNED and not (
                response.chunked and name.lower() == "content-length"
            ):
                self.send_header(name, value)
        if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
            self._tunnel(connection, response)
        elif response.length is None:
            self._stream(connection, response)
        else:
            self.end_headers()
            while block := response.read(_BLOCK):
                self.wfile.write(block)
            # An upstream that left too early: the client must not take the rest for an answer.
            self.close_connection = self.close_connection or bool(response.length)

    def _tunnel(self, connection: _Connection, response: HTTPResponse) -> None:
        """From here on it is no HTTP (but a WebSocket): bytes, both ways."""
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", response.getheader("Upgrade", ""))
        self.end_headers()
        self.close_connection = True
        link = connection.link
        assert link is not None
        with self._listening(link, link.sendall):
            while block := response.fp.read1(_BLOCK):
                self.wfile.write(block)

    def _stream(self, connection: _Connection, response: HTTPResponse) -> None:
        """
        An answer that goes on for as long as the upstream likes.

        It is the last one of the connection, so that what can still be read of the client is
        that it has left; nothing else would end a stream in which nothing happens.
        """
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        assert connection.link is not None
        with self._listening(connection.link, len):
            while block := response.read1(_BLOCK):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
            self.wfile.write(b"0\r\n\r\n")

    @contextmanager
    def _listening(self, link: socket.socket, take: Callable[[bytes], object]) -> Iterator[None]:
        """Give away what the client sends meanwhile; when it leaves, end the link."""

        def listen() -> None:
            with suppress(OSError, ValueError):
                while block := self.rfile.read1(_BLOCK):
                    take(block)
            _shut(link)

        thread = threading.Thread(target=listen, name="proxy client", daemon=True)
        thread.start()
        try:
            yield
        finally:
            _shut(self.connection)
            _shut(link)
            thread.join()


def _shut(link: socket.socket | None) -> None:
    """End a connection so that whoever reads from it wakes up, which closing alone does not."""
    if link is not None:
        with suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)
