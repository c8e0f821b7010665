"""Objects of a cluster, as plain dictionaries."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from footplate.cluster.backoff import Backoff
from footplate.cluster.kinds import POD, Kind, kind_of
from footplate.cluster.request import Request
from footplate.cluster.stop import Stop
from footplate.cluster.transport import LineStream, Transport
from footplate.errors import ClusterUnreachableError, ObjectConflictError, ObjectMissingError

__all__ = ["Cluster"]

# Spelt out once: in the class below, "list" is a method.
_Objects = list[dict[str, Any]]
_Reduce = Callable[[dict[str, Any]], dict[str, Any]]

_PAGE = 250
# How often a listing is begun again because it took longer than the server keeps its place.
_LISTINGS = 3
# The server ends a watch at the time asked for. If it has not by then, and some, it is lost.
_LOST_AFTER = 1.1
_STRICT = {"fieldValidation": "Strict"}


class Cluster:
    """
    One cluster, as one user.

    Objects come and go as the API has them. What may be done twice (everything but
    :meth:`create`, and :meth:`delete` without a UID) is tried again for some seconds when the
    connection is lost or the server is overloaded or faulty.

    All methods raise the errors of :class:`~footplate.errors.ClusterError`. ``namespace=None``
    means the namespace of this object, ``ALL_NAMESPACES`` all of them. Several threads may use
    the same object.

    Args:
        transport: To the API server.
        namespace: Where to work if nothing else is said.
        backoff: How what failed is tried again.
    """

    def __init__(
        self, transport: Transport, *, namespace: str, backoff: Backoff | None = None
    ) -> None:
        self.namespace = namespace
        self._transport = transport
        self._backoff = backoff or Backoff()

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._transport.access.server

    @property
    def context(self) -> str | None:
        """The context of the kubeconfig; None in a pod."""
        return self._transport.access.context

    @property
    def transport(self) -> Transport:
        """What the requests go through."""
        return self._transport

    @property
    def clock_offset_s(self) -> float:
        """
        How far the clock of the cluster is ahead of this machine's, in seconds.

        By the last answer; zero before the first, and as long as the clocks may agree.
        """
        return self._transport.clock_offset_s

    def with_backoff(self, backoff: Backoff) -> Cluster:
        """The same cluster, more or less patient."""
        return Cluster(self._transport, namespace=self.namespace, backoff=backoff)

    def get(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> dict[str, Any]:
        """
        An object.

        Args:
            subresource: What of it; left out: the object itself.

        Raises:
            ObjectMissingError: If it is not there, or the cluster does not know the kind.
        """
        return self._send(
            Request(
                verb="get",
                kind=kind,
                name=name,
                namespace=self._in(namespace),
                subresource=subresource,
            )
        )

    def find(self, kind: Kind, name: str, *, namespace: str | None = None) -> dict[str, Any] | None:
        """An object, or None if it is not there."""
        try:
            return self.get(kind, name, namespace=namespace)
        except ObjectMissingError:
            return None

    def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """
        Create an object.

        Never tried again: after a ClusterUnreachableError, or a ClusterError of no other kind,
        the object may be there or not. Look for it before creating it again.

        Args:
            obj: With the fields that its kind has, and no others.
            dry_run: Only have it checked, by admission too, and completed.

        Returns:
            The object as it now is.

        Raises:
            ObjectConflictError: If one of that name is there.
            RejectedError: If the server or an admission webhook takes it for wrong.
        """
        metadata = obj["metadata"]
        return self._send(
            Request(
                verb="create",
                kind=kind_of(obj),
                name=metadata.get("name") or metadata["generateName"],
                namespace=self._in(metadata.get("namespace")),
                query=_STRICT | _dry(dry_run),
                body=obj,
                is_repeatable=dry_run,
            )
        )

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """
        Change an object by a merge patch (None removes a field).

        Args:
            patch: What is to be. With a resourceVersion in it, the second try of a patch that
                got through raises ObjectConflictError.
            subresource: As ``status``.
            dry_run: Only have it checked.

        Returns:
            The object as it now is.
        """
        return self._send(
            Request(
                verb="patch",
                kind=kind,
                name=name,
                namespace=self._in(namespace),
                subresource=subresource,
                query=_STRICT | _dry(dry_run),
                body=patch,
            )
        )

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """
        Delete an object, and in the background what it owns; one that is not there is no error.

        Args:
            uid: Delete only the object that has it.
            grace_period_s: For a pod to end; None for its own.

        Raises:
            ObjectConflictError: If an object of that name has another UID.
        """
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        request = Request(
            verb="delete",
            kind=kind,
            name=name,
            namespace=self._in(namespace),
            body=options,
            is_repeatable=uid is not None,
        )
        with suppress(ObjectMissingError):
            self._send(request)

    def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        reduce: _Reduce | None = None,
    ) -> _Objects:
        """
        All objects that the selectors match.

        Args:
            reduce: Gives what is kept of an object, by default all of it; with it a long list
                is never held whole.
        """
        for _ in range(_LISTINGS - 1):
            try:
                return self._all(kind, namespace, labels, fields, reduce)
            except ObjectConflictError:  # a page came too late
                continue
        return self._all(kind, namespace, labels, fields, reduce)

    def pages(
        self, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> Iterator[tuple[_Objects, str]]:
        """
        The objects that the selectors match, as they all were at one moment.

        For those who must not hold everything at once.

        Yields:
            Some objects, and the resource version of the moment, which a watch can go on from.

        Raises:
            ObjectConflictError: If it took so long that the server has forgotten the moment.
        """
        # Without a resource version the server answers with the newest state; "0" would be
        # quicker, but any age, and disregards the limit.
        query = {"limit": str(_PAGE), "labelSelector": labels, "fieldSelector": fields}
        request = Request(verb="list", kind=kind, namespace=self._in(namespace), query=query)
        while True:
            page = self._send(request)
            yield _items(kind, page), page["metadata"]["resourceVersion"]
            if not (token := page["metadata"].get("continue")):
                return
            request = Request(
                verb="list",
                kind=kind,
                namespace=request.namespace,
                query=query | {"continue": token},
            )

    def stream(
        self,
        kind: Kind,
        *,
        resource_version: str,
        timeout_s: float,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        stop: Stop | None = None,
    ) -> Iterator[dict[str, Any]]:
        """
        One watch: what happens to the objects from a moment on, as the API tells it.

        The connection stands when this returns. :func:`~footplate.cluster.follow` is made of
        it and does the rest.

        Args:
            resource_version: The moment.
            timeout_s: When the server ends it.
            stop: Ends it.

        Returns:
            Events: ``{"type": ..., "object": ...}``, bookmarks and errors among them.

        Raises:
            ObjectConflictError: If the server has forgotten the moment.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(math.ceil(timeout_s)),
            "labelSelector": labels,
            "fieldSelector": fields,
        }
        request = Request(verb="watch", kind=kind, namespace=self._in(namespace), query=query)
        opened = self._transport.open(request, timeout_s=timeout_s * _LOST_AFTER)
        return _events(opened, stop or Stop())

    def log_lines(
        self,
        pod: str,
        *,
        namespace: str | None = None,
        container: str | None = None,
        follow: bool = False,
        tail: int | None = None,
        since_s: int | None = None,
        stop: Stop | None = None,
    ) -> Iterator[str]:
        """
        The lines that a container has printed.

        Following ends when the container ends, but also when the server closes the connection:
        it does so after some hours, when it restarts, and when the log file is rotated at a bad
        moment. Which of them it was does not show here: look at the pod, and follow
        again (``since_s``) if the container still runs.

        Args:
            container: Needed if the pod has several.
            follow: Go on with what it prints from now on.
            tail: Begin with the last lines alone.
            since_s: Begin with what was printed so many seconds ago.
            stop: Ends it.

        Raises:
            ObjectMissingError: If the pod is not there, or has not printed yet.
            ClusterUnreachableError: If the connection is lost.
        """
        query = {
            "container": container or "",
            "follow": "true" if follow else "",
            "tailLines": "" if tail is None else str(tail),
            "sinceSeconds": "" if since_s is None else str(since_s),
        }
        request = Request(
            verb="get",
            kind=POD,
            name=pod,
            namespace=self._in(namespace),
            subresource="log",
            query=query,
        )
        # Silence is no sign of a lost connection: a container may print nothing for hours.
        opened = self._transport.open(request, timeout_s=None if follow else 60.0)
        lines = opened.lines(stop or Stop())
        return (line.decode(errors="replace") for line in lines)

    def _all(
        self, kind: Kind, namespace: str | None, labels: str, fields: str, reduce: _Reduce | None
    ) -> _Objects:
        pages = self.pages(kind, namespace=namespace, labels=labels, fields=fields)
        return [reduce(obj) if reduce else obj for objects, _ in pages for obj in objects]

    def _send(self, request: Request) -> dict[str, Any]:
        return self._transport.send(request, self._backoff)

    def _in(self, namespace: str | None) -> str:
        return self.namespace if namespace is None else namespace


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _items(kind: Kind, page: Mapping[str, Any]) -> _Objects:
    """The objects of a page, which leaves out what they are."""
    said = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [said | item for item in page.get("items") or ()]


def _events(opened: LineStream, stop: Stop) -> Iterator[dict[str, Any]]:
    for line in opened.lines(stop):
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise ClusterUnreachableError(f"a watch broke off: {line[-80:]!r}") from error
        yield event
