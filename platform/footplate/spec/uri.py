"""Addresses in a spec file."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

__all__ = ["PlainUri"]


def _without_credentials(uri: str) -> str:
    if "@" in urlsplit(uri).netloc:
        raise ValueError(
            "holds credentials, which would be written to the store and the cluster; "
            "take them from the environment, in a cluster from the Secret named by secret"
        )
    return uri


PlainUri = Annotated[str, AfterValidator(_without_credentials)]
