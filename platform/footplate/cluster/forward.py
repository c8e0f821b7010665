"""
Connections to a port of a pod, through the API server.

The API server carries them in a WebSocket that has two channels a port: the bytes, and what went
wrong. It tells the end of the one by closing the whole; there is no half-closed connection.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from footplate.cluster.client import Cluster
from footplate.cluster.kinds import POD
from footplate.cluster.request import Request
from footplate.cluster.translation import refused, status_of, unreachable
from footplate.cluster.transport import CONNECT_TIMEOUT_S, Access
from footplate.errors import ClusterError

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from websocket import WebSocket

__all__ = ["PortForward"]

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
# Of one frame sent, and of what is kept for a reader that is slow.
_FRAME = 2**16
_MOST_KEPT = 2**20
# A socket that is readable may hold nothing but a piece of a frame, or a word of TLS.
_FRAME_TIMEOUT_S = 5.0
_SEND_TIMEOUT_S = 60.0


class PortForward:
    """
    A way to one port of a pod, for any number of connections.

    Args:
        cluster: Where the pod is.
        pod: Its name.
        port: The port that something in it listens on.
        namespace: Of the pod; None for that of the cluster object.
    """

    def __init__(
        self, cluster: Cluster, pod: str, port: int, *, namespace: str | None = None
    ) -> None:
        self._transport = cluster.transport
        self._request = Request(
            verb="get",
            kind=POD,
            name=pod,
            namespace=cluster.namespace if namespace is None else namespace,
            subresource="portforward",
            query={"ports": str(port)},
            is_repeatable=True,
        )
        self._port = port
        self._trouble: str | None = None

    @property
    def trouble(self) -> str | None:
        """What the cluster last said about a connection that it ended; None if nothing."""
        return self._trouble

    def connect(self) -> socket.socket:
        """
        A connection to the port, as a socket of this machine.

        A thread carries its bytes, and ends with it. Closing the socket, or the sending half
        of it, ends the connection. Whether something listens in the pod shows later: if not,
        the connection ends at once, and :attr:`trouble` says so.

        Raises:
            AccessDeniedError: If ports of pods may not be forwarded.
            ObjectMissingError: If the pod is not there.
            ClusterUnreachableError: If the API server does not answer.
        """
        web = self._open()
        ours, theirs = socket.socketpair()
        pump = threading.Thread(
            target=self._pump,
            args=(web, theirs),
            name=f"port {self._port} of {self._request.name}",
            daemon=True,
        )
        pump.start()
        return ours

    def _open(self) -> WebSocket:
        from websocket import WebSocketBadStatusException

        access = self._transport.access
        for _ in range(2):
            try:
                return self._dial(access)
            except WebSocketBadStatusException as error:
                code, content = error.status_code, error.resp_body or b""
                if code != 401:
                    break
                access = self._transport.renewed(access)
        raise refused(
            self._request, code, status_of(content), place=access.place, context=access.context
        )

    def _dial(self, access: Access) -> WebSocket:
        from websocket import WebSocket, WebSocketBadStatusException, WebSocketException

        web = WebSocket(sslopt=_tls(access.configuration))
        headers = self._transport.authorized(access)
        try:
            web.connect(
                f"ws{access.server.removeprefix('http')}{self._request.target}",
                header=[f"{name}: {value}" for name, value in headers.items()],
                subprotocols=[_PROTOCOL],
                timeout=CONNECT_TIMEOUT_S,
                redirect_limit=0,
                **_proxy(access.configuration),
            )
        except WebSocketBadStatusException:
            raise
        except (WebSocketException, OSError) as error:
            raise unreachable(self._request, error, place=access.place) from error
        return web

    def _pump(self, web: WebSocket, local: socket.socket) -> None:
        with closing(_Channel(web, local)) as channel:
            try:
                channel.carry()
            except ClusterError as error:
                self._trouble = error.message


class _Channel:
    """The bytes between one WebSocket and one socket, both ways, in one thread."""

    def __init__(self, web: WebSocket, local: socket.socket) -> None:
        self._web = web
        self._local = local
        self._kept = bytearray()
        self._greeted: set[int] = set()
        self._selector = selectors.DefaultSelector()
        local.setblocking(False)

    def close(self) -> None:
        """End both sides; nobody waits for the other's farewell."""
        self._selector.close()
        with suppress(Exception):  # it may be gone in any way
            self._web.send_close()
        self._web.shutdown()
        self._local.close()

    def carry(self) -> None:
        """
        Carry until either side ends.

        Raises:
            ClusterError: If the cluster says that something went wrong.
        """
        from websocket import WebSocketException

        try:
            with suppress(WebSocketException, OSError):  # lost: the reader sees its end
                while self._step():
                    pass
        finally:
            self._flush()

    def _step(self) -> bool:
        """Wait until something can be carried, and do it; whether there may be more."""
        web = self._web.sock
        assert web is not None
        # Whoever does not read what came must not make it pile up here.
        listening = len(self._kept) < _MOST_KEPT
        self._select(web, selectors.EVENT_READ if listening else 0)
        self._select(
            self._local, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._kept else 0)
        )
        # What TLS has decrypted already does not make the socket readable.
        pending = listening and isinstance(web, ssl.SSLSocket) and web.pending() > 0
        selected = self._selector.select(timeout=0 if pending else None)
        ready = {key.fileobj: events for key, events in selected}
        local = ready.get(self._local, 0)
        if local & selectors.EVENT_WRITE:
            self._give()
        if local & selectors.EVENT_READ and not self._send():
            return False
        return self._receive() if pending or web in ready else True

    def _select(self, sock: socket.socket, events: int) -> None:
        """What to wait for at a socket; nothing at all with 0."""
        known = self._selector.get_map().get(sock)
        if known is not None and known.events != events:
            self._selector.unregister(sock)
            known = None
        if known is None and events:
            self._selector.register(sock, events)

    def _send(self) -> bool:
        data = self._local.recv(_FRAME)
        if data:
            self._web.settimeout(_SEND_TIMEOUT_S)
            self._web.send_binary(bytes([_DATA]) + data)
        return bool(data)

    def _receive(self) -> bool:
        """Take one frame; whether there may be more."""
        from websocket import ABNF, WebSocketTimeoutException

        self._web.settimeout(_FRAME_TIMEOUT_S)
        try:
            code, data = self._web.recv_data()
        except WebSocketTimeoutException:
            return True
        if code == ABNF.OPCODE_CLOSE:
            return False
        self._take(data)
        return True

    def _take(self, frame: bytes) -> None:
        channel, data = frame[0], frame[1:]
        if channel not in self._greeted:  # the first frame of a channel repeats the port
            self._greeted.add(channel)
        elif channel == _ERROR:
            raise ClusterError(" ".join(data.decode(errors="replace").split()))
        else:
            self._kept += data

    def _give(self) -> None:
        del self._kept[: self._local.send(self._kept)]

    def _flush(self) -> None:
        """Give what came before the end to whoever still reads."""
        self._local.settimeout(_SEND_TIMEOUT_S)
        with suppress(OSError):
            self._local.sendall(self._kept)


def _tls(configuration: Configuration) -> dict[str, Any]:
    options: dict[str, Any] = {
        "ca_certs": configuration.ssl_ca_cert,
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "server_hostname": configuration.tls_server_name,
    }
    if not configuration.verify_ssl:
        options |= {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    return {name: value for name, value in options.items() if value is not None}


def _proxy(configuration: Configuration) -> dict[str, Any]:
    if not configuration.proxy:
        return {}
    proxy = urlsplit(configuration.proxy)
    options: dict[str, Any] = {"http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port}
    if proxy.username:
        options["http_proxy_auth"] = (proxy.username, proxy.password or "")
    if configuration.no_proxy:
        options["http_no_proxy"] = configuration.no_proxy.split(",")
    return options
