"""
Between a client and the API server: counts requests, and loses those that a test names.

The client speaks plain HTTP with the relay on loopback; the relay has the credentials.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml
from kubernetes import config as kubernetes_config

__all__ = ["Fate", "Relay"]

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}

Fate = Callable[[int], str]
"""
From the number of a request (from 1) to what happens: ``pass``, ``drop`` (it never arrives),
``swallow`` (it arrives, and the connection is lost before its answer) or ``hold`` (it arrives,
and its answer never does).
"""


class Relay:
    """
    A way to the API server; a context manager.

    Args:
        kubeconfig: Whose credentials are used.
        folder: For the kubeconfig of the relay.
        fate: Of each request.
    """

    def __init__(self, kubeconfig: Path, folder: Path, fate: Fate = lambda _: "pass") -> None:
        client = kubernetes_config.new_client_from_config(str(kubeconfig))
        self._pool = client.rest_client.pool_manager
        self._server = client.configuration.host
        self._headers: dict[str, str] = {}
        client.update_params_for_auth(
            self._headers, [], ["BearerToken"], resource_path="", method="GET", body=None
        )
        self._fate = fate
        self._lock = threading.Lock()
        self.requests: list[tuple[str, str]] = []
        self.watches: list[str] = []
        self.held = threading.Event()
        self._ends = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.kubeconfig = folder / "relay.kubeconfig"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.kubeconfig.write_text(yaml.safe_dump(self._config()), encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._http.shutdown()
        self._http.server_close()

    def _config(self) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self._http.server_port}"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "relay",
            "clusters": [{"name": "relay", "cluster": {"server": address}}],
            "users": [{"name": "relay", "user": {}}],
            "contexts": [
                {
                    "name": "relay",
                    "context": {"cluster": "relay", "user": "relay", "namespace": "team"},
                }
            ],
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                relay._take(self)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        with self._lock:
            path = urlsplit(handler.path)
            self.requests.append((handler.command, path.path))
            if "watch=true" in path.query:
                self.watches.append(path.path)
            fate = self._fate(len(self.requests))
        if fate == "drop":
            return
        sent = {k: v for k, v in handler.headers.items() if k.lower() not in (*_HOP_BY_HOP, "host")}
        answer = self._pool.request(
            handler.command,
            self._server + handler.path,
            body=body or None,
            headers=sent | self._headers,
            preload_content=False,
            redirect=False,
        )
        if fate in ("swallow", "hold"):
            answer.read()
            answer.release_conn()
            if fate == "hold":
                self.held.set()
                self._ends.wait()
            return
        handler.send_response_only(answer.status)
        for key, value in answer.headers.items():
            if key.lower() not in _HOP_BY_HOP:
                handler.send_header(key, value)
        handler.send_header("Connection", "close")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        with contextlib.suppress(OSError):  # the client has gone
            for chunk in answer.stream(65536, decode_content=False):
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                handler.wfile.flush()
            handler.wfile.write(b"0\r\n\r\n")
        answer.close()
