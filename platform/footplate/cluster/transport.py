"""Requests over HTTP: who asks, what is tried again, and what comes of it."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from footplate.cluster.backoff import Backoff
from footplate.cluster.request import Request
from footplate.cluster.stop import Stop
from footplate.cluster.translation import refused, status_of, unreachable
from footplate.errors import AccessDeniedError, ClusterError, ClusterUnreachableError

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from urllib3 import BaseHTTPResponse, PoolManager

__all__ = ["CONNECT_TIMEOUT_S", "Access", "LineStream", "Transport"]

CONNECT_TIMEOUT_S = 10.0
"""Until a server that does not answer to a connection counts as unreachable."""

# The API server itself gives up a request after a minute.
_READ_TIMEOUT_S = 65.0
_CHUNK = 2**16
_HEADER_S = 30.0
# What the server may say now and not say again: overload, a fault, a restart.
_PASSING = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """
    A way to one API server.

    Args:
        server: Its address.
        namespace: Where to work if nothing else is said.
        context: Of the kubeconfig; None in a pod.
        configuration: Addresses, certificates and tokens, as the Kubernetes client has them.
        pool: The connections.
    """

    server: str
    namespace: str
    context: str | None
    configuration: Configuration
    pool: PoolManager

    @property
    def place(self) -> str:
        """The server, for people."""
        of = f" (context {self.context})" if self.context else ""
        return f"the API server {self.server}{of}"

    def authorization(self) -> dict[str, str]:
        """
        The header that says who asks.

        The Kubernetes client looks here whether a token has expired, and gets another one: from
        a plugin, an OpenID provider or a file, each of which fails in ways of its own.
        """
        try:
            token = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:
            raise AccessDeniedError(
                f"the credentials for {self.place} cannot be renewed: {error}", "Log in again."
            ) from error
        return {"Authorization": token} if token else {}


class LineStream:
    """
    A response that goes on, line by line.

    Args:
        response: As it came; closed at the end.
        request: What was asked.
        place: The server, for people.
    """

    def __init__(self, response: BaseHTTPResponse, request: Request, place: str) -> None:
        self._response = response
        self._request = request
        self._place = place

    def lines(self, stop: Stop) -> Iterator[bytes]:
        """
        Lines without their ends, until the server ends it or the stop is set.

        Raises:
            ClusterUnreachableError: If the connection is lost.
        """
        try:
            with stop.interrupting(self._interrupt), _lost(self._request, self._place):
                yield from _lines(self._response.stream(_CHUNK))
        except ClusterUnreachableError:
            if not stop.is_set():
                raise
        finally:
            self._response.close()

    def _interrupt(self) -> None:
        # Called while another thread reads, or has just come to the end and closed it.
        with suppress(OSError, RuntimeError, TypeError, ValueError):
            self._response.shutdown()


class Transport:
    """
    Sends requests to one API server; of one object several threads may make use.

    Credentials that the server does not know (any more) are read anew, once a request: tokens
    are rotated, and a person who logs in again in another window needs not start over here.

    Args:
        load: Gives the access, from the configuration as it now is.
    """

    def __init__(self, load: Callable[[], Access]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._access = load()
        self._header: dict[str, str] = {}
        self._header_of: Access | None = None
        self._look_again = 0.0
        self._clock_offset_s = 0.0

    @property
    def clock_offset_s(self) -> float:
        """How far the server's clock is ahead of this machine's, by its last answer."""
        return self._clock_offset_s

    @property
    def access(self) -> Access:
        """The present one."""
        return self._access

    def send(self, request: Request, backoff: Backoff) -> dict[str, Any]:
        """
        The object that the server answers with.

        Args:
            request: What to ask; repeated if it may be, and only what fails in passing.
            backoff: How often.
        """
        started, failures = time.monotonic(), 0
        while True:
            failures += 1
            wait_s = backoff.wait_s(failures)
            elapsed_s = time.monotonic() - started
            is_last = not request.is_repeatable or elapsed_s + wait_s > backoff.within_s
            try:
                response = self._exchange(request, timeout_s=_READ_TIMEOUT_S)
            except ClusterUnreachableError as error:
                if is_last or _is_lasting(error):
                    raise
            else:
                if is_last or response.status not in _PASSING:
                    return self._object(request, response)
                wait_s = min(max(wait_s, _retry_after_s(response)), backoff.within_s)
            time.sleep(wait_s)

    def open(self, request: Request, *, timeout_s: float | None) -> LineStream:
        """
        A response that goes on.

        Args:
            request: What to ask; tried once.
            timeout_s: How long nothing may come until the connection counts as lost.
        """
        response = self._exchange(request, timeout_s=timeout_s, is_streamed=True)
        if response.status != 200:
            self._raise(request, response)
        return LineStream(response, request, self._access.place)

    def authorized(self, access: Access) -> dict[str, str]:
        """
        The header that says who asks; one thread alone renews an expired token.

        It is kept for a while: the Kubernetes client takes a token for expired five minutes
        early, and would run the plugin of short-lived ones for every request.
        """
        with self._lock:
            if self._header_of is not access or time.monotonic() >= self._look_again:
                self._header, self._header_of = access.authorization(), access
                self._look_again = time.monotonic() + _HEADER_S
            return self._header

    def renewed(self, stale: Access) -> Access:
        """The access from the configuration as it now is, unless another thread was faster."""
        with self._lock:
            if self._access is stale:
                self._access = self._load()
                stale.pool.clear()
            return self._access

    def _exchange(
        self, request: Request, *, timeout_s: float | None, is_streamed: bool = False
    ) -> BaseHTTPResponse:
        access = self._access
        response = self._ask(access, request, timeout_s, is_streamed)
        if response.status == 401:
            response.close()
            response = self._ask(self.renewed(access), request, timeout_s, is_streamed)
        return response

    def _ask(
        self, access: Access, request: Request, timeout_s: float | None, is_streamed: bool
    ) -> BaseHTTPResponse:
        from urllib3 import Timeout

        headers = request.headers | self.authorized(access)
        asked = time.time()
        with _lost(request, access.place):
            response = access.pool.urlopen(
                request.method,
                f"{access.server}{request.target}",
                body=request.content,
                headers=headers,
                timeout=Timeout(connect=CONNECT_TIMEOUT_S, read=timeout_s),
                preload_content=not is_streamed,
                retries=False,
                redirect=False,
            )
        offset_s = _clock_offset_s(response, asked=asked, answered=time.time())
        self._clock_offset_s = self._clock_offset_s if offset_s is None else offset_s
        return response

    def _object(self, request: Request, response: BaseHTTPResponse) -> dict[str, Any]:
        if not 200 <= response.status < 300:
            self._raise(request, response)
        try:
            answer: dict[str, Any] = json.loads(response.data)
        except ValueError as error:
            raise ClusterError(
                f"{self._access.place} answers what no API server does: {response.data[:80]!r}",
                "Is that the right address, or is there a proxy that wants a login?",
            ) from error
        return answer

    def _raise(self, request: Request, response: BaseHTTPResponse) -> None:
        access = self._access
        with _lost(request, access.place):
            status = status_of(response.data)
        raise refused(request, response.status, status, place=access.place, context=access.context)


@contextmanager
def _lost(request: Request, place: str) -> Iterator[None]:
    """Turn what the network library raises into an error of ours."""
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (HTTPError, OSError) as error:
        raise unreachable(request, error, place=place) from error


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines; a last one without an end as well."""
    parts: list[bytes] = []
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        if rest:
            yield b"".join(parts)
            yield from rest[:-1]
            parts = [rest[-1]]
    if last := b"".join(parts):
        yield last


def _is_lasting(error: ClusterUnreachableError) -> bool:
    """Whether asking again would only say the same later: a certificate does not change."""
    cause = error.__cause__
    below = cause.args if cause is not None else ()
    return any(isinstance(one, ssl.SSLCertVerificationError) for one in below)


def _retry_after_s(response: BaseHTTPResponse) -> float:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else 0.0


def _clock_offset_s(response: BaseHTTPResponse, *, asked: float, answered: float) -> float | None:
    """
    How far the server's clock is ahead; None if it does not say.

    The header counts whole seconds, and was written at some time between question and answer:
    of all that this leaves possible it is the least, so that clocks which agree do not differ.
    """
    try:
        said = parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    least, most = said - answered, said + 1 - asked
    return max(0.0, least) or min(0.0, most)
