"""Connections to a port of a pod, against a WebSocket server that speaks as the kubelet does."""

from __future__ import annotations

import base64
import hashlib
import http.client
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from footplate.cluster import PortForward
from footplate.errors import AccessDeniedError, ClusterUnreachableError, ObjectMissingError
from playback import Playback, cluster_at, make_certificate, status

_PATH = "GET /api/v1/namespaces/team/pods/head/portforward"
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Kubelet:
    """
    A WebSocket server that forwards to what stands for the pod.

    Args:
        pod: Called with a connection, in a thread of its own.
        trouble: Said on the error channel, in place of forwarding.
        certificate: With its key, for TLS.
    """

    def __init__(
        self,
        pod: Callable[[socket.socket], None],
        *,
        trouble: str = "",
        certificate: Path | None = None,
    ) -> None:
        self._pod = pod
        self._trouble = trouble
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._listener = context.wrap_socket(self._listener, server_side=True)
            self.url = self.url.replace("http", "https")
        self.heads: list[bytes] = []
        self._start(self._serve)

    def close(self) -> None:
        """Take no more connections, and wait for those that are there."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._forward, connection)

    def _forward(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            head = b"".join(iter(reader.readline, b"\r\n"))
            self.heads.append(head)
            (key,) = (
                line.split(b": ")[1]
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"sec-websocket-key:")
            )
            accept = base64.b64encode(hashlib.sha1(key + _MAGIC).digest())  # noqa: S324
            connection.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n"
                b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
            )
            port = struct.pack("<H", 8265)
            connection.sendall(_frame(b"\0" + port) + _frame(b"\1" + port))
            if self._trouble:
                connection.sendall(_frame(b"\1" + self._trouble.encode()))
                return
            ours, theirs = socket.socketpair()
            self._start(self._run_pod, theirs)
            self._start(_to_client, ours, connection)
            with ours:
                for data in _frames(reader):
                    ours.sendall(data[1:])
                ours.shutdown(socket.SHUT_RDWR)

    def _run_pod(self, connection: socket.socket) -> None:
        with connection:
            self._pod(connection)


def _to_client(pod: socket.socket, client: socket.socket) -> None:
    try:
        while data := pod.recv(5000):
            client.sendall(_frame(b"\0" + data))
        client.sendall(_frame(b"", code=8))
    except OSError:
        pass  # the client has gone


def _frame(data: bytes, code: int = 2) -> bytes:
    size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
    return bytes([0x80 | code]) + size + data


def _frames(reader: object) -> Iterator[bytes]:
    """What the client sends, until it closes."""
    read = reader.read  # type: ignore[attr-defined]
    while len(start := read(2)) == 2:
        size = start[1] & 0x7F
        if size >= 126:
            size = int.from_bytes(read(2 if size == 126 else 8), "big")
        mask, data = read(4), read(size)
        if start[0] & 0x0F == 8:
            return
        repeated = mask * (size // 4 + 1)
        value = int.from_bytes(data, "big") ^ int.from_bytes(repeated[:size], "big")
        yield value.to_bytes(size, "big")


def _received(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(2**16), b""))


def _echo(connection: socket.socket) -> None:
    while data := connection.recv(2**16):
        connection.sendall(data)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Every connection takes its thread with it."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("port "):
            thread.join(5)
            assert not thread.is_alive()


def test_carries_any_bytes_both_ways(tmp_path: Path) -> None:
    """A megabyte of every byte there is comes back as it went, also while both sides talk."""
    content = bytes(range(256)) * 4096
    with closing(Kubelet(_echo)) as kubelet:
        forward = PortForward(cluster_at(kubelet.url, tmp_path), "head", 8265)
        with forward.connect() as connection:
            sender = threading.Thread(target=connection.sendall, args=(content,))
            sender.start()
            received = bytearray()
            while len(received) < len(content):
                received += connection.recv(2**16)
            sender.join()
        assert received == content
    head = kubelet.heads[0]
    assert head.startswith(b"GET /api/v1/namespaces/team/pods/head/portforward?ports=8265 ")
    assert b"Authorization: Bearer secret" in head
    assert forward.trouble is None


@pytest.mark.parametrize("with_tls", [False, True])
def test_the_end_comes_after_the_last_byte(tmp_path: Path, with_tls: bool) -> None:
    """What the pod said, unasked, before it closed is all read, and then the end."""
    content = b"x" * 3_000_000

    def speak(connection: socket.socket) -> None:
        connection.sendall(content)

    certificate = make_certificate(tmp_path) if with_tls else None
    with closing(Kubelet(speak, certificate=certificate)) as kubelet:
        cluster = cluster_at(kubelet.url, tmp_path, certificate)
        with PortForward(cluster, "head", 8265).connect() as connection:
            assert _received(connection) == content


@pytest.mark.parametrize("with_tls", [False, True])
def test_a_greeting_is_not_kept_back(tmp_path: Path, with_tls: bool) -> None:
    """A few bytes that arrive with the first ones, and nothing after them, are delivered."""

    def greet(connection: socket.socket) -> None:
        connection.sendall(b"hello")
        connection.recv(1)

    certificate = make_certificate(tmp_path) if with_tls else None
    with closing(Kubelet(greet, certificate=certificate)) as kubelet:
        cluster = cluster_at(kubelet.url, tmp_path, certificate)
        with PortForward(cluster, "head", 8265).connect() as connection:
            connection.settimeout(5)
            assert connection.recv(10) == b"hello"


def test_many_short_connections(tmp_path: Path) -> None:
    """A browser opens many; each is a connection of its own, and an HTTP library can use it."""

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as reader:
            head = b"".join(iter(reader.readline, b"\r\n"))
        path = head.split()[1]
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(path) + path)

    with closing(Kubelet(serve)) as kubelet:
        forward = PortForward(cluster_at(kubelet.url, tmp_path), "head", 8265)
        for number in range(20):
            with closing(http.client.HTTPConnection("pod")) as client:
                client.sock = forward.connect()
                client.request("GET", f"/{number}")
                assert client.getresponse().read() == f"/{number}".encode()


def test_nothing_listens(tmp_path: Path) -> None:
    """The connection ends, and what the cluster says about it is there to be shown."""
    text = "error forwarding port 8265 to pod: connection refused\n"
    with closing(Kubelet(_echo, trouble=text)) as kubelet:
        forward = PortForward(cluster_at(kubelet.url, tmp_path), "head", 8265)
        with forward.connect() as connection:
            assert _received(connection) == b""
        assert forward.trouble == text.strip()


def test_refused(tmp_path: Path) -> None:
    """A pod that is not there, a permission that is missing and a lost server are told apart."""
    missing = status(404, 'pods "head" not found', details={"name": "head", "kind": "pods"})
    denied = 'pods "head" is forbidden: User "jane" cannot create resource "pods/portforward" in'
    with Playback() as server:
        server.expect(_PATH, missing, status(403, denied), *[status(401, "Unauthorized")] * 2)
        forward = PortForward(cluster_at(server.url, tmp_path), "head", 8265)
        with pytest.raises(ObjectMissingError, match="not found in namespace team"):
            forward.connect()
        with pytest.raises(AccessDeniedError, match="not allowed to create pods/portforward"):
            forward.connect()
        with pytest.raises(AccessDeniedError, match="does not know who asks"):
            forward.connect()
    with pytest.raises(ClusterUnreachableError, match="connection refused"):
        forward.connect()
