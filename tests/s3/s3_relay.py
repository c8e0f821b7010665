"""
Between clients and an S3 server: counts what passes, and does to it what networks and stores do.

Requests pass as they are, with the ``Host`` that the client has signed. A thread serves each
connection: while it waits or moves a body it needs no interpreter, so many at once are cheap.

``python s3_relay.py HOST:PORT --latency-s 0.03`` is one in a process of its own, which shares
no interpreter with what is measured; it prints its port, and ends with its standard input.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from typing import Literal, Self
from urllib.parse import unquote, urlsplit

__all__ = [
    "SLOW_DOWN",
    "VANISHED",
    "Break",
    "Delay",
    "Exchange",
    "Fault",
    "Flip",
    "Lag",
    "Refusal",
    "Rule",
    "S3Relay",
]

_CHUNK = 2**18
_PACED_CHUNK = 2**14
_RANGE = re.compile(rb"bytes=(\d+)-(\d+)")
_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset


@dataclass(frozen=True)
class Delay:
    """The request waits, and then is served."""

    seconds: float


@dataclass(frozen=True)
class Refusal:
    """The answer is an error of S3; the server never sees the request."""

    status: int
    code: str


@dataclass(frozen=True)
class Break:
    """
    The exchange is not completed.

    Args:
        how: The connection is reset, or closed as if all were said, or nothing more comes on it.
        after: What still happens: the ``request`` arrives here; or the server has done it, and
            the ``answer`` is lost; or so many bytes of the answer's body come.
    """

    how: Literal["reset", "close", "silence"]
    after: Literal["request", "answer"] | int


@dataclass(frozen=True)
class Flip:
    """Every bit of one byte of the answer's body is wrong."""

    at: int


@dataclass(frozen=True)
class Lag:
    """The answer is what the same question was answered so many seconds ago, or since then."""

    seconds: float


Fault = Delay | Refusal | Break | Flip | Lag

SLOW_DOWN = Refusal(503, "SlowDown")
VANISHED = Refusal(404, "NoSuchKey")


@dataclass(kw_only=True)
class Exchange:
    """
    A request, and what became of it.

    Attributes:
        number: From 1.
        key: Of the object, without the bucket.
        span: First byte asked for and the one behind the last; None for all.
        at: When it came, on the monotonic clock.
        fault: What happened to it.
        sent: Bytes of the answer's body that went to the client.
    """

    number: int
    method: str
    key: str
    query: str
    span: tuple[int, int] | None
    at: float
    fault: Fault | None = None
    sent: int = 0


Where = Callable[[Exchange], bool]


@dataclass(kw_only=True)
class Rule:
    """Which requests a fault happens to, and how many it has happened to."""

    fault: Fault
    where: Where
    times: float
    share: float
    matched: int = 0
    struck: int = 0

    def strikes(self, exchange: Exchange) -> bool:
        """Whether it happens to this one, which counts it."""
        if self.struck >= self.times or not self.where(exchange):
            return False
        self.matched += 1
        strikes = int(self.matched * self.share) > int((self.matched - 1) * self.share)
        self.struck += strikes
        return strikes


class S3Relay:
    """
    A port on loopback that leads to a server; a context manager.

    Args:
        target: Host and port of the server.
        latency_s: What each request waits before it is passed on.
        bytes_per_s: What all answers together are slowed to.
    """

    def __init__(
        self, target: tuple[str, int], *, latency_s: float = 0.0, bytes_per_s: float | None = None
    ) -> None:
        self.latency_s = latency_s
        self.bytes_per_s = bytes_per_s
        self.exchanges: list[Exchange] = []
        self._target = target
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._answers: dict[tuple[str, str, str], tuple[float, bytes]] = {}
        self._ends = threading.Event()
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._acceptor = threading.Thread(target=self._accept, name="s3-relay")

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        with self._lock:
            connections = dict(self._connections)
        for client in connections.values():
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in connections:
            thread.join()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def endpoint(self) -> str:
        """What a client takes for the server."""
        return f"http://127.0.0.1:{self.port}"

    def inject(
        self,
        fault: Fault,
        where: Where = lambda _: True,
        *,
        times: float = float("inf"),
        share: float = 1.0,
    ) -> Rule:
        """
        Let a fault happen from now on; of several rules the first that strikes counts.

        Args:
            where: To which requests.
            times: To how many of them, at most.
            share: To which part of them, evenly: 0.5 is every second one.
        """
        rule = Rule(fault=fault, where=where, times=times, share=share)
        with self._lock:
            self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """Let no fault happen any more."""
        with self._lock:
            self._rules.clear()

    def of(self, key: str, method: str = "GET") -> list[Exchange]:
        """The exchanges about one object so far."""
        with self._lock:
            return [each for each in self.exchanges if (each.key, each.method) == (key, method)]

    def _accept(self) -> None:
        while not self._ends.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._serve, args=(client,), name="s3-relay")
            with self._lock:
                self._connections[thread] = client
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, client.makefile("rb") as incoming:
            while (head := _Head.read(incoming)) and self._exchange(client, incoming, head):
                pass
        with self._lock:
            del self._connections[threading.current_thread()]

    def _exchange(self, client: socket.socket, incoming: BufferedReader, head: _Head) -> bool:
        """Serve one request; whether the connection lives on."""
        content = incoming.read(head.length or 0)
        exchange = self._arrived(head)
        fault = exchange.fault
        self._ends.wait(self.latency_s + (fault.seconds if isinstance(fault, Delay) else 0.0))
        if isinstance(fault, Refusal):
            client.sendall(_refused(fault, exchange))
            return True
        if isinstance(fault, Break) and fault.after == "request":
            return _broken(client, fault)
        if isinstance(fault, Lag):
            client.sendall(self._old_answer(exchange, head, content, fault.seconds))
            return True
        with (
            socket.create_connection(self._target) as server,
            server.makefile("rb") as answer,
        ):
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.sendall(head.with_closing() + content)
            return self._answer(client, answer, exchange)

    def _old_answer(self, exchange: Exchange, head: _Head, content: bytes, seconds: float) -> bytes:
        question = (exchange.method, exchange.key, exchange.query)
        with self._lock:
            known = self._answers.get(question)
        if known is not None and exchange.at - known[0] <= seconds:
            return known[1]
        with socket.create_connection(self._target) as server, server.makefile("rb") as answer:
            server.sendall(head.with_closing() + content)
            found = _Head.read(answer)
            assert found is not None
            new = found.without_closing() + answer.read()
        with self._lock:
            self._answers[question] = (exchange.at, new)
        return new

    def _arrived(self, head: _Head) -> Exchange:
        method, target, _ = head.first.decode("ascii").split(" ", 2)
        parts = urlsplit(target)
        match = _RANGE.fullmatch(head.get(b"range") or b"")
        with self._lock:
            exchange = Exchange(
                number=len(self.exchanges) + 1,
                method=method,
                key=unquote(parts.path).lstrip("/").partition("/")[2],
                query=parts.query,
                span=(int(match[1]), int(match[2]) + 1) if match else None,
                at=time.monotonic(),
            )
            rule = next((rule for rule in self._rules if rule.strikes(exchange)), None)
            exchange.fault = rule.fault if rule else None
            self.exchanges.append(exchange)
        return exchange

    def _answer(self, client: socket.socket, answer: BufferedReader, exchange: Exchange) -> bool:
        fault = exchange.fault
        head = _Head.read(answer)
        if head is None:
            return False
        if isinstance(fault, Break) and fault.after == "answer":
            answer.read()
            return _broken(client, fault)
        client.sendall(head.without_closing())
        if isinstance(fault, Break):
            assert isinstance(fault.after, int)
            self._pass_on(client, answer, exchange, fault.after)
            return _broken(client, fault)
        self._pass_on(client, answer, exchange, None)
        return head.is_framed or exchange.method == "HEAD"

    def _pass_on(
        self,
        client: socket.socket,
        answer: BufferedReader,
        exchange: Exchange,
        limit: int | None,
    ) -> None:
        if self.bytes_per_s is None and exchange.fault is None:
            _hand_over(client, answer, exchange)
            return
        buffer = memoryview(bytearray(_CHUNK if self.bytes_per_s is None else _PACED_CHUNK))
        while limit is None or exchange.sent < limit:
            room = len(buffer) if limit is None else min(len(buffer), limit - exchange.sent)
            count = answer.readinto1(buffer[:room])
            if not count:
                return
            if isinstance(exchange.fault, Flip) and 0 <= exchange.fault.at - exchange.sent < count:
                buffer[exchange.fault.at - exchange.sent] ^= 0xFF
            self._wait_for_turn(count)
            exchange.sent += count  # first: the client may act on it at once
            client.sendall(buffer[:count])

    def _wait_for_turn(self, count: int) -> None:
        if self.bytes_per_s is None:
            return
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + count / self.bytes_per_s
            until = self._free_at
        self._ends.wait(max(0.0, until - time.monotonic()))


@dataclass(frozen=True)
class _Head:
    """First line and headers of a request or an answer, as they were sent."""

    first: bytes
    headers: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def read(cls, stream: BufferedReader) -> _Head | None:
        """The next one, or None if the connection has ended."""
        first = stream.readline()
        headers = []
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, text = line.partition(b":")
            headers.append((name, text.strip()))
        return cls(first.rstrip(), tuple(headers)) if line else None

    def get(self, name: bytes) -> bytes | None:
        """A header by its name in small letters."""
        return next((text for known, text in self.headers if known.lower() == name), None)

    @property
    def length(self) -> int | None:
        """Of the body, if it is said."""
        text = self.get(b"content-length")
        return int(text) if text else None

    @property
    def is_framed(self) -> bool:
        """Whether an answer has an end other than that of the connection."""
        has_no_body = self.first.split(b" ", 2)[1] in (b"204", b"304")
        return has_no_body or self.length is not None or bool(self.get(b"transfer-encoding"))

    def without_closing(self) -> bytes:
        """The head for a connection that stays."""
        kept = (b"%b: %b" % pair for pair in self.headers if pair[0].lower() != b"connection")
        return b"\r\n".join((self.first, *kept, b"", b""))

    def with_closing(self) -> bytes:
        """The head for a connection whose end is that of the answer."""
        return self.without_closing().removesuffix(b"\r\n") + b"Connection: close\r\n\r\n"


def _hand_over(client: socket.socket, answer: BufferedReader, exchange: Exchange) -> None:
    """Let the system move a body, through a pipe: no byte of it is ever in this process."""
    begun = answer.peek()
    exchange.sent += len(begun)
    client.sendall(begun)
    outlet, inlet = os.pipe()
    try:
        fcntl.fcntl(inlet, fcntl.F_SETPIPE_SZ, _CHUNK)
        while count := os.splice(answer.fileno(), inlet, _CHUNK):
            exchange.sent += count
            while count:
                count -= os.splice(outlet, client.fileno(), count)
    finally:
        os.close(outlet)
        os.close(inlet)


def _refused(refusal: Refusal, exchange: Exchange) -> bytes:
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{refusal.code}</Code><Message>said by the relay</Message></Error>"
    ).encode()
    head = (
        f"HTTP/1.1 {refusal.status} {refusal.code}\r\n"
        f"Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    return head if exchange.method == "HEAD" else head + body


def _broken(client: socket.socket, fault: Break) -> bool:
    """Leave a connection as the fault says; it does not live on."""
    if fault.how == "silence":
        client.recv(1)  # until the client has gone, or the relay ends
    elif fault.how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    return False


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", metavar="HOST:PORT")
    parser.add_argument("--latency-s", type=float, default=0.0)
    parser.add_argument("--bytes-per-s", type=float)
    asked = parser.parse_args()
    host, _, port = asked.target.rpartition(":")
    target = (host, int(port))
    with S3Relay(target, latency_s=asked.latency_s, bytes_per_s=asked.bytes_per_s) as relay:
        print(relay.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _main()
