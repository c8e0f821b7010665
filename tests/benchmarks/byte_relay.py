"""Between a client and a server: passes bytes on as they come, and counts them."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

__all__ = ["ByteRelay"]

_CHUNK = 2**16


class ByteRelay:
    """
    A port on loopback that leads to the API server; a context manager.

    Encryption passes through it untouched.

    Args:
        kubeconfig: How the API server is reached without it; one cluster, one context.
        folder: For the kubeconfig that leads through it.
    """

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        self._cluster: dict[str, Any] = self._config["clusters"][0]["cluster"]
        server = urlsplit(self._cluster["server"])
        assert server.hostname is not None
        self._target = (server.hostname, server.port or 443)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._bytes = 0
        self.kubeconfig = folder / "relay.kubeconfig"

    def __enter__(self) -> Self:
        port = self._listener.getsockname()[1]
        self._cluster |= {
            "server": f"https://127.0.0.1:{port}",
            "tls-server-name": self._target[0],
        }
        self.kubeconfig.write_text(yaml.safe_dump(self._config), encoding="utf-8")
        threading.Thread(target=self._accept, name="relay", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def count(self) -> int:
        """How many bytes have passed so far, in both directions."""
        with self._lock:
            return self._bytes

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:  # closed
                return
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                with self._lock:
                    self._bytes += len(chunk)
                target.sendall(chunk)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
