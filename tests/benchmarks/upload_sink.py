"""
An object store that takes everything and keeps nothing, for how fast a client can upload.

It speaks as much of S3 as uploads need. Started as a process of its own, it prints its port.
"""

from __future__ import annotations

import re
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_READ_BYTES = 1 << 20
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sizes: dict[str, int] = {}  # noqa: RUF012 - of the whole process

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(_READ_BYTES))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
        """Say nothing."""

    def do_PUT(self) -> None:
        """An object, or a part of one."""
        size = self._read_body()
        key = urlsplit(self.path).path
        self.sizes[key] = self.sizes.get(key, 0) + size
        self._answer(b"", ETag='"0123456789abcdef0123456789abcdef"')

    def do_POST(self) -> None:
        """The beginning and the end of an upload in parts."""
        self._read_body()
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.strip("/").partition("/")
        if "uploads" in parse_qs(parts.query, keep_blank_values=True):
            self.sizes[parts.path] = 0
            name, inner = "InitiateMultipartUploadResult", "<UploadId>1</UploadId>"
        else:
            name, inner = "CompleteMultipartUploadResult", '<ETag>"0123"</ETag>'
        self._answer(
            f'<?xml version="1.0" encoding="UTF-8"?><{name} xmlns="{_NAMESPACE}">'
            f"<Bucket>{bucket}</Bucket><Key>{key}</Key>{inner}</{name}>".encode(),
        )

    def do_HEAD(self) -> None:
        """The size of an object."""
        size = self.sizes.get(urlsplit(self.path).path)
        self.send_response(404 if size is None else 200)
        self.send_header("Content-Length", str(size or 0))
        self.send_header("ETag", '"0123"')
        self.send_header("Last-Modified", "Sun, 01 Mar 2026 00:00:00 GMT")
        self.end_headers()

    do_GET = do_HEAD  # noqa: N815

    def do_DELETE(self) -> None:
        """Forget."""
        self.send_response(204)
        self.end_headers()

    def _answer(self, content: bytes, **headers: str) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _read_body(self) -> int:
        """Its size without what a signed stream has around its chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = int(self.headers.get("Content-Length", 0))
        left = length
        while left:
            left -= self.rfile.readinto(self._buffer[: min(left, _READ_BYTES)])
        decoded = self.headers.get("x-amz-decoded-content-length")
        return int(decoded) if decoded else length

    def _read_chunks(self) -> int:
        total = 0
        while size := int(re.split(rb"[;\r]", self.rfile.readline())[0], 16):
            total += size
            while size:
                size -= self.rfile.readinto(self._buffer[: min(size, _READ_BYTES)])
            self.rfile.readline()
        self.rfile.readline()
        return int(self.headers.get("x-amz-decoded-content-length") or total)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


if __name__ == "__main__":
    server = _Server(("127.0.0.1", 0), _Sink)
    print(server.server_address[1], flush=True)
    sys.stdout.close()
    server.serve_forever()
