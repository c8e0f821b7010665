"""What is asked of the API server, without asking it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlencode

from footplate.cluster.kinds import ALL_NAMESPACES, Kind

__all__ = ["Request", "Verb"]

Verb = Literal["create", "delete", "get", "list", "patch", "watch"]
"""As permissions name it."""

_METHODS: dict[Verb, str] = {
    "create": "POST",
    "delete": "DELETE",
    "get": "GET",
    "list": "GET",
    "patch": "PATCH",
    "watch": "GET",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """
    One request.

    Args:
        verb: What is done.
        kind: Of what.
        namespace: Where; ``ALL_NAMESPACES`` for everywhere.
        name: Of the object; None for a collection.
        subresource: Of the object.
        query: Parameters of the URL; empty values are left out.
        body: What is sent, as JSON.
        is_repeatable: Whether doing it twice is the same as doing it once.
    """

    verb: Verb
    kind: Kind
    namespace: str
    name: str | None = None
    subresource: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    is_repeatable: bool = True

    @property
    def method(self) -> str:
        """Of HTTP."""
        return _METHODS[self.verb]

    @property
    def target(self) -> str:
        """Path and query; a created object's name is in its body alone."""
        name = None if self.verb == "create" else self.name
        path = self.kind.path(self.namespace, name, self.subresource)
        query = urlencode({key: value for key, value in self.query.items() if value})
        return f"{path}?{query}" if query else path

    @property
    def content(self) -> bytes | None:
        """The body as bytes."""
        return None if self.body is None else json.dumps(self.body).encode()

    @property
    def headers(self) -> dict[str, str]:
        """What goes with it, but for who asks."""
        headers = {"Accept": "application/json, */*", "User-Agent": "footplate"}
        if self.body is not None:
            kind = "merge-patch+json" if self.verb == "patch" else "json"
            headers["Content-Type"] = f"application/{kind}"
        if self.verb == "list":
            headers["Accept-Encoding"] = "gzip"
        return headers

    @property
    def what(self) -> str:
        """What it is about, for people: ``RayJob digits in namespace team``."""
        what = self.kind.resource if self.name is None else f"{self.kind.kind} {self.name}"
        return f"{what}{self.where}"

    @property
    def where(self) -> str:
        """The end of a sentence that says where."""
        if not self.kind.namespaced:
            return ""
        if self.namespace == ALL_NAMESPACES:
            return " in all namespaces"
        return f" in namespace {self.namespace}"
