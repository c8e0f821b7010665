"""The store that a job names."""

from __future__ import annotations

from footplate.spec import Job
from footplate.store.objects import Store

__all__ = ["open_store"]


def open_store(job: Job) -> Store:
    """
    The store of a job's runs.

    Raises:
        StoreError: If it can't be opened.
    """
    return Store(job.path(job.store.uri), endpoint=job.store.endpoint, region=job.store.region)
