"""
A real HTTP server that plays recorded answers of an API server.

Each path (with its method) has a queue of answers. A request that nobody expected fails the
test, and so does an answer that nobody asked for.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import ssl
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from footplate.cluster import Backoff, Cluster, connect

QUICK = Backoff(first_s=0.01, longest_s=0.05, within_s=10.0)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """
    What the server says.

    Args:
        status: Of HTTP.
        body: JSON, or bytes as they are.
        headers: Beyond the usual ones.
        chunks: In place of a body: sent one by one; an event is waited for.
        is_cut: Whether the connection is closed before the answer is complete.
    """

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Sequence[bytes | threading.Event] | None = None
    is_cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Playback:
    """
    The server; a context manager that fails at its end if anything was not as expected.

    Args:
        certificate: A PEM file with certificate and key, for TLS.
    """

    def __init__(self, certificate: Path | None = None) -> None:
        self._answers: dict[str, deque[Answer]] = defaultdict(deque)
        self._lock = threading.Lock()
        self.asked: list[Asked] = []
        self.wrong: list[str] = []
        self.closing = threading.Event()
        self._server = _Server(self)
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """Its address."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def expect(self, request: str, *answers: Answer) -> None:
        """Answer ``METHOD /path``, the first time with the first answer, and so on."""
        self._answers[request].extend(answers)

    def queries(self, request: str) -> list[dict[str, str]]:
        """The queries with which ``METHOD /path`` was asked, in order."""
        return [asked.query for asked in self.asked if f"{asked.method} {asked.path}" == request]

    def answer(self, asked: Asked) -> Answer:
        """The next answer to a request."""
        request = f"{asked.method} {asked.path}"
        with self._lock:
            self.asked.append(asked)
            if self._answers[request]:
                return self._answers[request].popleft()
            self.wrong.append(f"unexpected: {request} {asked.query}")
        return Answer(status=418, body=b"unexpected")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        for connection in self._server.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        unused = [f"never asked: {request}" for request, left in self._answers.items() if left]
        assert error is not None or not self.wrong + unused, "\n".join(self.wrong + unused)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, playback: Playback) -> None:
        self.playback = playback
        self.connections: list[socket.socket] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        """Remember the connection: clients keep theirs open."""
        super().setup()
        self.server.connections.append(self.connection)

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        answer = self.server.playback.answer(
            Asked(
                method=self.command,
                path=parts.path,
                query=dict(parse_qsl(parts.query)),
                headers=dict(self.headers),
                body=json.loads(content) if content else None,
            )
        )
        if answer.is_cut and answer.chunks is None:
            self.close_connection = True
            return
        if "Date" in answer.headers:
            self.send_response_only(answer.status)
        else:
            self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.chunks is None:
            self._send_body(answer.body)
        else:
            self._send_chunks(answer, answer.chunks)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

    def _send_body(self, body: Any) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_chunks(self, answer: Answer, chunks: Sequence[bytes | threading.Event]) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            if isinstance(chunk, bytes):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            else:
                while not chunk.wait(0.01) and not self.server.playback.closing.is_set():
                    pass
        if answer.is_cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing to say."""


@pytest.fixture
def server() -> Iterator[Playback]:
    """An API server that plays what a test records in it."""
    with Playback() as playback:
        yield playback


@pytest.fixture
def cluster(server: Playback, tmp_path: Path) -> Cluster:
    """A client of it."""
    return cluster_at(server.url, tmp_path)


def status(code: int, message: str, **more: Any) -> Answer:
    """A refusal as API servers write it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}
    return Answer(status=code, body=body | {"code": code} | more)


def listing(
    *items: dict[str, Any], version: str, next_page: str = "", kind: str = "RayJobList"
) -> Answer:
    """A page of a list."""
    metadata = {"resourceVersion": version} | ({"continue": next_page} if next_page else {})
    return Answer(body={"kind": kind, "metadata": metadata, "items": list(items)})


def rayjob(name: str, version: str, **status: Any) -> dict[str, Any]:
    """A small RayJob; its UID follows from its name."""
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata | {"resourceVersion": version},
        "status": status,
    }


def event(action: str, obj: Mapping[str, Any]) -> bytes:
    """An event as a watch tells it."""
    return json.dumps({"type": action, "object": obj}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    """The event that says how far the watch has come."""
    return event("BOOKMARK", {"kind": "RayJob", "metadata": {"resourceVersion": version}})


def write_kubeconfig(
    path: Path,
    server: str,
    *,
    context: str = "test",
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
    current: bool = True,
) -> Path:
    """A kubeconfig with one context, whose namespace is ``team``."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context if current else "",
        "contexts": [
            {
                "name": context,
                "context": {"cluster": context, "user": context, "namespace": "team"},
            }
        ],
        "clusters": [{"name": context, "cluster": {"server": server} | dict(cluster or {})}],
        "users": [{"name": context, "user": dict(user or {"token": "secret"})}],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def cluster_at(server: str, folder: Path, certificate: Path | None = None) -> Cluster:
    """A client of the server, in namespace ``team``, that is tried again quickly."""
    trusted = {} if certificate is None else {"certificate-authority": str(certificate)}
    path = write_kubeconfig(folder / "kubeconfig", server, cluster=trusted)
    return connect(kubeconfig=str(path)).with_backoff(QUICK)


def make_certificate(folder: Path) -> Path:
    """A key, and the certificate of 127.0.0.1 that it has signed itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / "server.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path


def taken(changes: Iterator[Any], count: int) -> list[Any]:
    """The next so many."""
    return [next(changes) for _ in range(count)]
