"""
From what the API server answers, and from what its absence raises, to errors of ours.

The server says no in a ``Status``: a code, a reason, a message and sometimes details. Code and
reason do not tell whether a permission is missing (what others must grant) or an object is wrong
(what the author must change): both may be 403 ``Forbidden``. Only the message does.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from typing import Any

from footplate.cluster.request import Request
from footplate.errors import (
    AccessDeniedError,
    ClusterError,
    ClusterUnreachableError,
    ObjectConflictError,
    ObjectMissingError,
    RejectedError,
)

__all__ = ["refused", "status_of", "unreachable"]

# The sentence of every authorizer of Kubernetes.
_NOT_AUTHORIZED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) (?:resource|path) "(?P<resource>[^"]*)"'
)
_WEBHOOK = re.compile(
    r'admission webhook "(?P<name>[^"]+)" denied the request:? ?(?P<text>.*)', re.S
)
# How admission without a webhook begins: Pod Security, quotas, limits, policies.
_ADMISSION = re.compile(r'^\S+ "[^"]*" is forbidden: ')
_STRICT = "strict decoding error: "
_NEXT_FIELD = re.compile(r", (?=(?:unknown|duplicate) field )")

_DEEDS = {"log": "read the log of", "portforward": "forward a port of"}
_INSTALLED_BY = {"ray.io": "KubeRay", "kueue.x-k8s.io": "Kueue"}


def status_of(content: bytes) -> dict[str, Any]:
    """The ``Status`` in an answer, or one that holds what another server (a proxy) wrote."""
    try:
        status = json.loads(content)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return status
    return {"message": _one_line(content.decode(errors="replace"))[:500]}


def refused(
    request: Request, code: int, status: Mapping[str, Any], *, place: str, context: str | None
) -> ClusterError:
    """
    The error for an answer that says no.

    Args:
        request: What was asked.
        code: Of HTTP, or of an error in a watch.
        status: What the server says about it.
        place: The server, for people.
        context: Of the kubeconfig, for commands to copy.
    """
    message = status.get("message") or f"HTTP status {code}"
    if code == 401:
        return AccessDeniedError(
            f"{place} does not know who asks to {_deed(request)}: {message}",
            "Log in again: the credentials are missing, wrong or have expired.",
        )
    if code == 403 and _is_permission(message):
        return _denied(request, message, place, context)
    if code == 404:
        return _missing(request, status, message, place)
    if code == 409 or (code == 410 and request.verb in {"list", "watch"}):
        return ObjectConflictError(f"cannot {_deed(request)}: {message}")
    if code in {400, 403, 405, 413, 415, 422}:
        return _rejected(request, status, message)
    if code in {429, 502, 503, 504}:
        return ClusterUnreachableError(
            f"{place} cannot {_deed(request)} now (HTTP status {code}): {message}",
            _doubt(request),
        )
    return ClusterError(
        f"{place} failed to {_deed(request)} (HTTP status {code}): {message}", _doubt(request)
    )


def unreachable(request: Request, cause: Exception, *, place: str) -> ClusterUnreachableError:
    """The error for no answer, or one that broke off."""
    hint = _doubt(request) or "Check the network (a VPN?) and that the address is right."
    return ClusterUnreachableError(f"cannot reach {place}: {_reason(cause)}", hint)


def _deed(request: Request) -> str:
    verb = _DEEDS.get(request.subresource or "", request.verb)
    return f"{verb} {request.what}"


def _doubt(request: Request) -> str:
    """A request that is not repeated may have been carried out although no answer came."""
    if request.is_repeatable:
        return ""
    return f"It may have happened all the same: look for {request.what} before trying again."


def _is_permission(message: str) -> bool:
    if _WEBHOOK.search(message):
        return False
    return bool(_NOT_AUTHORIZED.search(message)) or not _ADMISSION.search(message)


def _denied(request: Request, message: str, place: str, context: str | None) -> AccessDeniedError:
    found = _NOT_AUTHORIZED.search(message)
    if found is None:
        return AccessDeniedError(f"{place} does not allow to {_deed(request)}: {message}")
    resource, _, subresource = found["resource"].partition("/")
    verb, group = found["verb"], request.kind.group
    full = f"{resource}.{group}" if group and resource == request.kind.plural else resource
    where = request.where
    shown = f"{full}/{subresource}" if subresource else full
    command = ["kubectl", *(["--context", context] if context else []), "auth", "can-i", verb]
    command += [full, *([f"--subresource={subresource}"] if subresource else [])]
    if request.kind.namespaced:
        command.append(f"--namespace={request.namespace}" if request.namespace else "-A")
    return AccessDeniedError(
        f"{found['user']} is not allowed to {verb} {shown}{where} at {place}",
        f"Ask for the permission; this shows whether it is there: {' '.join(command)}",
    )


def _missing(
    request: Request, status: Mapping[str, Any], message: str, place: str
) -> ObjectMissingError:
    details = status.get("details") or {}
    if details.get("name"):
        where = "" if details.get("kind") == "namespaces" else request.where
        return ObjectMissingError(f"{message}{where} at {place}")
    installed_by = _INSTALLED_BY.get(request.kind.group)
    return ObjectMissingError(
        f"{place} does not know {request.kind.resource} ({request.kind.api_version})",
        f"Is {installed_by} installed there?" if installed_by else "",
    )


def _rejected(request: Request, status: Mapping[str, Any], message: str) -> ClusterError:
    if request.subresource == "log":  # 400: the container waits to start, or its log is gone
        return ObjectMissingError(f"no log{request.where}: {message}")
    webhook = _WEBHOOK.search(message)
    by = f" (admission webhook {webhook['name']})" if webhook else ""
    lines = [webhook["text"]] if webhook else _causes(status) or _decoding(message)
    listed = "\n".join(f"  {line}" for text in lines for line in text.splitlines())
    return RejectedError(f"cannot {_deed(request)}: it is rejected{by}\n{listed}")


def _causes(status: Mapping[str, Any]) -> list[str]:
    lines = []
    for cause in (status.get("details") or {}).get("causes") or ():
        field, text = cause.get("field", ""), cause.get("message", "")
        # An error of the object as a whole has the field "<nil>".
        lines.append(text if field in {"", "<nil>"} else f"{field}: {text}")
    return lines


def _decoding(message: str) -> list[str]:
    """A message, or each of the unknown fields that it lists in one sentence."""
    _, found, fields = message.partition(_STRICT)
    return _NEXT_FIELD.split(fields) if found else [message]


def _reason(cause: BaseException) -> str:
    """What lies at the bottom of an error of the network library, in one line."""
    from http.client import IncompleteRead

    from urllib3.exceptions import (
        ConnectTimeoutError,
        NameResolutionError,
        NewConnectionError,
        ReadTimeoutError,
    )

    if isinstance(cause, NameResolutionError):
        return "its name cannot be resolved"
    if isinstance(cause, IncompleteRead | ssl.SSLEOFError):
        return "the connection broke off"
    if isinstance(cause, ReadTimeoutError):
        return "it does not answer in time"
    if isinstance(cause, NewConnectionError) and cause.__cause__ is not None:
        return _reason(cause.__cause__)
    if isinstance(cause, ConnectTimeoutError):
        return "no connection in time"
    inner = [one for one in cause.args if isinstance(one, Exception)]
    if inner and inner[0] is not cause:
        return _reason(inner[0])
    verify_message = getattr(cause, "verify_message", None)
    if verify_message:
        return f"its certificate is not trusted: {verify_message}"
    if isinstance(cause, OSError) and cause.strerror:
        return _lower_first(_one_line(cause.strerror))
    return _lower_first(_one_line(str(cause))) or type(cause).__name__


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _one_line(text: str) -> str:
    return " ".join(text.split())
