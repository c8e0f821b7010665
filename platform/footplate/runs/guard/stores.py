"""
Which stores the guard reads.

It sends its credentials where a user's spec says, so its operator says where that may be.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from footplate.errors import StoreError
from footplate.spec import Store

__all__ = ["check_allowed"]

_BUCKETS = ("s3://", "gs://")
# It becomes a part of the name of the host.
_REGION = re.compile(r"[a-z0-9-]+")


def check_allowed(store: Store, endpoints: Collection[str]) -> None:
    """
    Refuse a store that the guard has no business with.

    Args:
        store: As the spec of a run has it.
        endpoints: Of S3-compatible servers, that specs may name; without any the guard reads the
            buckets of those specs that name none.

    Raises:
        StoreError: If it is a folder, or somewhere else than it may be.
    """
    if not store.uri.startswith(_BUCKETS):
        raise StoreError(f"its store {store.uri} is no bucket")
    if store.endpoint is not None and _plain(store.endpoint) not in map(_plain, endpoints):
        raise StoreError(
            f"--store-endpoint does not allow {store.endpoint}: credentials would be sent there"
        )
    if store.region is not None and not _REGION.fullmatch(store.region):
        raise StoreError(f"its region {store.region} is no name of a region")


def _plain(url: str) -> str:
    return url.rstrip("/")
