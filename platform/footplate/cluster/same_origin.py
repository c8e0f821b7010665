"""Which requests to a server on loopback come from a web site that has no business there."""

from __future__ import annotations

from email.message import Message

__all__ = ["LOOPBACK", "refusal"]

LOOPBACK = "127.0.0.1"


def refusal(method: str, path: str, headers: Message, *, port: int) -> str | None:
    """
    Why a request is refused, in a sentence; None if it may be served.

    A browser sends what any page asks it to, and says on whose behalf. Only our own pages, and
    programs that are no browser, are served; and a link from elsewhere may open the front page,
    for further in, opening a page may already change something.

    Args:
        path: With the query.
        port: That the server listens on.
    """
    host = headers.get("Host")
    if host not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
        # A name that somebody else has made resolve to this machine.
        return f"This is not {host}. Open http://{LOOPBACK}:{port}."
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return f"A page of {origin} has no access to this one."
    site = headers.get("Sec-Fetch-Site", "none")
    is_own = site in ("none", "same-origin")
    if not is_own and not (method == "GET" and path == "/" and _opens_page(headers)):
        return "Another web site has no access to this one."
    return None


def _opens_page(headers: Message) -> bool:
    """Whether the answer is shown to a person as a page of its own, in no frame."""
    mode, destination = headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")
    return mode == "navigate" and destination == "document"
