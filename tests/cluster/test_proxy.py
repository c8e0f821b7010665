"""A page in a cluster at an address of this machine: against a real server on loopback."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from footplate.cluster.proxy import LocalProxy, Upstream
from footplate.errors import ClusterUnreachableError

_TOKEN = "Bearer of-the-cluster"  # noqa: S105
_WAIT_S = 20.0


class _Backend(ThreadingHTTPServer):
    """Stands where the dashboard does, and remembers what reached it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.connections = 0
        self.requests: list[str] = []
        self.go_on = threading.Event()
        self.left = threading.Event()

    def connect(self) -> socket.socket:
        self.connections += 1
        return socket.create_connection(("127.0.0.1", self.server_port))

    def handle_error(self, request: object, client_address: object) -> None:
        """A proxy that leaves is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Backend

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        name = f"_get_{urlsplit(self.path).path.strip('/') or 'headers'}"
        getattr(self, name)()

    do_DELETE = do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(hashlib.sha256(body).hexdigest().encode())

    def _get_headers(self) -> None:
        self._send(json.dumps(self.headers.items()).encode())

    def _get_large(self) -> None:
        self._send(bytes(range(256)) * 40_000)

    def _get_cookie(self) -> None:
        self.send_response(204)
        self.send_header("Set-Cookie", "ray-authentication-token=secret")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _get_stream(self) -> None:
        """One part now, one when the test says so."""
        self._begin_stream()
        self._chunk(b"first")
        assert self.server.go_on.wait(_WAIT_S)
        self._chunk(b"second")
        self._chunk(b"")

    def _get_broken(self) -> None:
        self._begin_stream()
        self._chunk(b"first")
        self.close_connection = True

    def _get_silent(self) -> None:
        self._begin_stream()
        self._chunk(b"first")
        assert not self.connection.recv(1)
        self.server.left.set()
        self.close_connection = True

    def _get_unsized(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"until the end")
        self.close_connection = True

    def _get_short(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"not all of it")
        self.close_connection = True

    def _get_last(self) -> None:
        """Answer, and close the connection without having said so."""
        self._send(b"last")
        self.close_connection = True

    def _get_upgrade(self) -> None:
        """Echo, in capitals, to show that bytes go both ways."""
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", self.headers["Upgrade"])
        self.send_header("Sec-WebSocket-Accept", "accepted")
        self.end_headers()
        self.wfile.write(b"hello")
        while block := self.rfile.read1(1024):
            self.wfile.write(block.upper())
        self.server.left.set()
        self.close_connection = True

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing on the test's output."""


@pytest.fixture
def backend() -> Iterator[_Backend]:
    """The server in the cluster."""
    with _Backend() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(backend: _Backend) -> Iterator[LocalProxy]:
    """A proxy that leads there."""
    with LocalProxy() as proxy:
        proxy.serve(_upstream(backend))
        yield proxy


@pytest.fixture
def client(proxy: LocalProxy) -> Iterator[HTTPConnection]:
    """A connection of a browser."""
    with closing(_client(proxy)) as client:
        yield client


def _upstream(backend: _Backend) -> Upstream:
    return Upstream(connect=backend.connect, headers={"X-Ray-Authorization": _TOKEN})


def _client(proxy: LocalProxy) -> HTTPConnection:
    return HTTPConnection(urlsplit(proxy.address).netloc, timeout=_WAIT_S)


def _get(client: HTTPConnection, path: str = "/", **headers: str) -> HTTPResponse:
    client.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    return client.getresponse()


def _seen(response: HTTPResponse) -> dict[str, str]:
    """The headers that reached the backend."""
    return {name.lower(): value for name, value in json.loads(response.read())}


def test_requests_are_authenticated_on_their_way(client: HTTPConnection) -> None:
    """The token is added here, and nothing the browser holds stands in its place."""
    seen = _seen(
        _get(
            client,
            X_Ray_Authorization="Bearer of-somebody",
            Authorization="Bearer of-somebody",
            Cookie="of-another-port=secret",
            Accept_Encoding="br",
        )
    )
    assert seen["x-ray-authorization"] == _TOKEN
    assert seen["accept-encoding"] == "br"
    assert not {"authorization", "cookie"} & set(seen)


def test_the_browser_gets_no_cookie(client: HTTPConnection) -> None:
    """A cookie could carry the token, and would go to every port of this machine."""
    response = _get(client, "/cookie")
    assert response.status == 204
    assert response.getheader("Cache-Control") == "no-store"
    assert response.getheader("Set-Cookie") is None


def test_the_token_is_not_shown() -> None:
    """Not even where an upstream is printed."""
    assert "of-the-cluster" not in repr(
        Upstream(connect=socket.socket, headers={"Authorization": _TOKEN})
    )


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "[::1]"])
def test_other_names_of_this_machine_are_refused(
    backend: _Backend, proxy: LocalProxy, client: HTTPConnection, host: str
) -> None:
    """A site whose name resolves to this machine's loopback must not read the dashboard."""
    response = _get(client, Host=host.format(port=urlsplit(proxy.address).port))
    assert response.status == 403
    assert not backend.requests


def test_localhost_is_this_machine(proxy: LocalProxy, client: HTTPConnection) -> None:
    """What people type is served, too."""
    host = f"localhost:{urlsplit(proxy.address).port}"
    assert _get(client, Host=host, Origin=f"http://{host}").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_other_sites_are_refused(
    backend: _Backend, client: HTTPConnection, method: str, headers: dict[str, str]
) -> None:
    """Whatever a page of another origin sends, embeds or frames does not reach the cluster."""
    client.request(method, "/", headers=headers)
    assert client.getresponse().status == 403
    assert not backend.requests


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/headers", 403)])
def test_a_link_may_lead_to_the_front_page_only(
    client: HTTPConnection, path: str, status: int
) -> None:
    """A link in a chat opens the dashboard; one that would stop something does nothing."""
    response = _get(
        client,
        path,
        Sec_Fetch_Site="cross-site",
        Sec_Fetch_Mode="navigate",
        Sec_Fetch_Dest="document",
    )
    assert response.status == status


def test_own_pages_may_do_everything(proxy: LocalProxy, client: HTTPConnection) -> None:
    """What the dashboard's own page sends is passed on, changes included."""
    headers = {"Origin": proxy.address, "Sec-Fetch-Site": "same-origin"}
    client.request("POST", "/", body=b"x", headers=headers)
    assert client.getresponse().status == 200


def test_a_request_without_end_is_refused(backend: _Backend, client: HTTPConnection) -> None:
    """A body of unknown length is told to say it, not passed on wrongly."""
    client.putrequest("POST", "/")
    client.putheader("Transfer-Encoding", "chunked")
    client.endheaders()  # no body: the connection may be closed before it is sent
    assert client.getresponse().status == 411
    assert backend.connections == 0


def test_large_bodies_go_both_ways(client: HTTPConnection) -> None:
    """Many megabytes arrive as they were sent."""
    body = bytes(range(256)) * 40_000
    client.request("POST", "/", body=body)
    assert client.getresponse().read() == hashlib.sha256(body).hexdigest().encode()
    assert _get(client, "/large").read() == body


def test_head_has_no_body(client: HTTPConnection) -> None:
    """The length of what is not sent is passed on, and the connection stays usable."""
    client.request("HEAD", "/large")
    response = client.getresponse()
    assert response.getheader("Content-Length") == str(256 * 40_000)
    assert response.read() == b""
    assert _get(client).status == 200


def test_one_connection_serves_many_requests(backend: _Backend, client: HTTPConnection) -> None:
    """To open one through the API server takes several round trips."""
    for _ in range(5):
        _get(client).read()
    assert backend.connections == 1


def test_a_kept_connection_may_be_closed(backend: _Backend, client: HTTPConnection) -> None:
    """A server may close at any time between two requests; nobody notices."""
    assert _get(client, "/last").read() == b"last"
    assert _get(client).status == 200
    assert backend.connections == 2


def test_streams_flow(backend: _Backend, client: HTTPConnection) -> None:
    """What follows a log shows each line when it comes."""
    response = _get(client, "/stream")
    assert response.read1(100) == b"first"
    backend.go_on.set()
    assert response.read() == b"second"


def test_a_broken_stream_is_not_taken_for_a_whole_one(client: HTTPConnection) -> None:
    """The client sees that the end is missing."""
    with pytest.raises(IncompleteRead):
        _get(client, "/broken").read()


def test_a_short_answer_is_not_taken_for_a_whole_one(client: HTTPConnection) -> None:
    """Nothing else is read as the rest of an answer whose server left too early."""
    with pytest.raises(IncompleteRead):
        _get(client, "/short").read()


def test_an_answer_may_end_with_its_connection(client: HTTPConnection) -> None:
    """As older servers do it."""
    assert _get(client, "/unsized").read() == b"until the end"


def test_a_client_that_leaves_ends_its_stream(backend: _Backend, proxy: LocalProxy) -> None:
    """A stream in which nothing happens does not stay open in the cluster for ever."""
    with closing(_client(proxy)) as client:
        assert _get(client, "/silent").read1(100) == b"first"
    assert backend.left.wait(_WAIT_S)


def test_leaving_the_proxy_ends_streams(backend: _Backend) -> None:
    """After the command has ended nothing of it holds a connection to the cluster."""
    with LocalProxy() as proxy:
        proxy.serve(_upstream(backend))
        client = _client(proxy)
        assert _get(client, "/silent").read1(100) == b"first"
    assert backend.left.wait(_WAIT_S)
    client.close()


def _upgraded(proxy: LocalProxy) -> socket.socket:
    host = urlsplit(proxy.address)
    link = socket.create_connection((host.hostname, host.port), timeout=_WAIT_S)
    link.sendall(
        f"GET /upgrade HTTP/1.1\r\nHost: {host.netloc}\r\nOrigin: {proxy.address}\r\n"
        "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Key: key\r\n\r\nearly".encode()
    )
    return link


def _read_until(link: socket.socket, end: bytes) -> bytes:
    read = b""
    while not read.endswith(end):
        block = link.recv(1024)
        assert block, read
        read += block
    return read


def test_web_sockets_pass(proxy: LocalProxy) -> None:
    """After the handshake bytes go both ways, those sent before its answer too."""
    with closing(_upgraded(proxy)) as link:
        head, _, rest = _read_until(link, b"EARLY").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"\r\nUpgrade: websocket" in head
        assert b"\r\nSec-WebSocket-Accept: accepted" in head
        assert rest == b"helloEARLY"
        link.sendall(b"later")
        assert _read_until(link, b"LATER") == b"LATER"


def test_a_web_socket_ends_with_its_client(backend: _Backend, proxy: LocalProxy) -> None:
    """A closed tab leaves nothing behind in the cluster."""
    with closing(_upgraded(proxy)) as link:
        _read_until(link, b"EARLY")
    assert backend.left.wait(_WAIT_S)


def test_without_upstream_it_says_what_is_waited_for() -> None:
    """A page that says why there is no dashboard, as text, and loads itself again."""
    with LocalProxy(waiting="behind <b>other</b> jobs") as proxy, closing(_client(proxy)) as client:
        response = _get(client)
        page = response.read().decode()
        assert response.status == 503
        assert response.getheader("Retry-After") == "2"
        assert "behind &lt;b&gt;other&lt;/b&gt; jobs" in page
        assert "location.reload()" in page


def test_a_new_upstream_takes_over(backend: _Backend, proxy: LocalProxy) -> None:
    """A connection of the browser that is still open leads to the new pod, with its token."""
    with closing(_client(proxy)) as client:
        assert _seen(_get(client))["x-ray-authorization"] == _TOKEN
        proxy.serve("the head is being replaced")
        assert _get(client).status == 503
        proxy.serve(Upstream(connect=backend.connect, headers={"X-Ray-Authorization": "new"}))
        assert _seen(_get(client))["x-ray-authorization"] == "new"


def test_a_kept_connection_is_not_used_for_another_upstream(
    backend: _Backend, proxy: LocalProxy, client: HTTPConnection
) -> None:
    """It would lead to the old pod, which goes on for a while beside the new one."""
    _get(client).read()
    proxy.serve(Upstream(connect=backend.connect, headers={"X-Ray-Authorization": "new"}))
    assert _seen(_get(client))["x-ray-authorization"] == "new"
    assert backend.connections == 2


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError("refused"), ClusterUnreachableError("the API server is away")]
)
def test_an_upstream_that_cannot_be_reached(proxy: LocalProxy, error: Exception) -> None:
    """A head that has just started, or a lost network: said, and tried again by itself."""

    def fail() -> socket.socket:
        raise error

    proxy.serve(Upstream(connect=fail))
    with closing(_client(proxy)) as client:
        response = _get(client)
        assert response.status == 503
        assert str(error) in response.read().decode()


def test_many_connections_at_once(backend: _Backend, proxy: LocalProxy) -> None:
    """A page that loads two hundred things gets each of them."""

    def fetch(number: int) -> int:
        with closing(_client(proxy)) as client:
            return _get(client, f"/headers?{number}").status

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(fetch, range(200))) == {200}
    assert len(backend.requests) == 200


def test_a_taken_port_is_an_error(proxy: LocalProxy) -> None:
    """Nobody is sent to what somebody else serves there."""
    with pytest.raises(OSError, match="in use"):
        LocalProxy(urlsplit(proxy.address).port or 0)
