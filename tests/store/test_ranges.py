"""Parts of objects, many at once, and a store that says that this is too much."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from footplate.errors import ObjectNotFoundError, StoreError
from footplate.store import Store, was_refused, was_throttled

_CONTENT = bytes(range(256)) * 200_000  # larger than one part


class _Bucket(BaseHTTPRequestHandler):
    """
    Answers with ranges of one object.

    Others are named by the status, and the code of the error, that it answers with.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.headers["Range"])  # type: ignore[attr-defined]
        status, _, code = self.path.rpartition("/")[2].partition("-")
        if status.isdecimal():
            self._answer(int(status), f"<Error><Code>{code}</Code></Error>".encode(), {})
            return
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        assert found is not None
        start, stop = int(found[1]), min(int(found[2]) + 1, len(_CONTENT))
        total = f"bytes {start}-{stop - 1}/{len(_CONTENT)}"
        modified = "Wed, 21 Oct 2015 07:28:00 GMT"
        headers = {"Content-Range": total, "ETag": '"1"', "Last-Modified": modified}
        self._answer(206, _CONTENT[start:stop], headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests look at what was asked."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """A bucket on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Bucket)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def bucket(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store in it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "who")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "cares")
    return Store("s3://bucket/team", endpoint=f"http://127.0.0.1:{server.server_port}")


_RANGES = [(0, 4), (100, 1000), (256 * 200_000 - 5, 256 * 200_000), (1000, 30_000_000)]


def test_ranges_of_a_file(store: Store) -> None:
    """Each is what stands there, and shorter where the file ends before."""
    store.put("a/b", _CONTENT)
    found = store.read_ranges("a/b", [*_RANGES, (51_199_999, 60_000_000), (60_000_000, 60_000_001)])

    assert found[:4] == [_CONTENT[start:stop] for start, stop in _RANGES]
    assert found[4:] == [b"\xff", b""]
    assert store.read_ranges("a/b", []) == []
    with pytest.raises(ObjectNotFoundError, match=r"a/c: it is not there"):
        store.read_ranges("a/c", [(0, 1)])


def test_ranges_of_a_bucket(bucket: Store, server: ThreadingHTTPServer) -> None:
    """They are fetched at once, the large ones in parts."""
    found = bucket.read_ranges("content", _RANGES)

    assert found == [_CONTENT[start:stop] for start, stop in _RANGES]
    assert len(server.asked) == 5  # type: ignore[attr-defined]
    assert bucket.read_ranges("content", []) == []
    assert bucket.read_ranges("content", [(7, 9)]) == [_CONTENT[7:9]]


@pytest.mark.parametrize(
    ("answer", "throttled", "refused"),
    [
        ("429-TooManyRequests", True, False),
        ("503-SlowDown", True, False),
        ("503-ServiceUnavailable", False, False),
        ("500-InternalError", False, False),
        ("403-AccessDenied", False, True),
    ],
)
def test_a_refusal_is_not_tried_again_here(
    bucket: Store, server: ThreadingHTTPServer, answer: str, throttled: bool, refused: bool
) -> None:
    """Who reads many ranges hears at once what the store says, and which kind of refusal it is."""
    with pytest.raises(StoreError, match=f"cannot read s3://bucket/team/{answer}") as caught:
        bucket.read_ranges(answer, [(0, 10)])

    assert was_throttled(caught.value) is throttled
    assert was_refused(caught.value) is refused
    assert len(server.asked) == 1  # type: ignore[attr-defined]
    with pytest.raises(ObjectNotFoundError):
        bucket.read_ranges("404-NoSuchKey", [(0, 10), (20, 30)])


def test_nothing_is_behind_the_end(bucket: Store) -> None:
    """S3 refuses such a range, which says as much as an empty answer."""
    assert bucket.read_ranges("416-InvalidRange", [(0, 10)]) == [b""]
    assert bucket.read_ranges("416-InvalidRange", [(0, 10), (20, 30)]) == [b"", b""]
