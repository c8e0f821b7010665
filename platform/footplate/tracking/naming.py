"""What MLflow accepts as a name and as the value of a parameter."""

from __future__ import annotations

import functools
import hashlib
import posixpath
import re

__all__ = ["accepted_name", "shortened"]

# MLflow takes 250 characters; ours also stand behind a prefix in the keys of tags.
_NAME_LIMIT = 200
# What the oldest servers in use take; newer ones cut off silently after 6000.
_VALUE_LIMIT = 500
_DIGEST_DIGITS = 8
_REFUSED = r"[^\w\-. :/]"


@functools.lru_cache(maxsize=4096)
def accepted_name(name: str) -> str:
    """
    The name under which MLflow records a metric or a parameter.

    A name that MLflow refuses (``acc@5``, ``//x``, the empty one) has its characters replaced
    and a digest of the original added: two names never fall together, and a name is the same in
    every attempt.
    """
    if len(name) <= _NAME_LIMIT and _is_accepted(name):
        return name
    parts = re.sub(_REFUSED, "_", name).split("/")
    readable = "/".join(part for part in parts if part.strip(".")).lstrip(".")
    digest = _digest(name)[:_DIGEST_DIGITS]
    return f"{readable[: _NAME_LIMIT - len(digest) - 1]}-{digest}" if readable else digest


def shortened(value: str) -> str:
    """The value of a parameter or tag; a long one is named by its digest instead of cut off."""
    if len(value) <= _VALUE_LIMIT:
        return value.encode(errors="replace").decode()
    characters = f"{len(value)} characters; the whole value is in the run's folder"
    return f"sha256:{_digest(value)} ({characters})"


def _is_accepted(name: str) -> bool:
    """MLflow takes a name for a relative path and wants nothing to be left to tidy up in it."""
    tidy = posixpath.normpath(name) == name and name != "."
    return tidy and not name.startswith(("/", "..")) and re.search(_REFUSED, name) is None


def _digest(text: str) -> str:
    # JSON can carry lone surrogates, which are no UTF-8.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
