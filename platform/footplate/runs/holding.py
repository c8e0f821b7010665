"""Keeping a run from beginning while something of it is removed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from footplate.errors import FencedError
from footplate.runs.history import PastRun
from footplate.runs.local import LOCAL_NAMESPACE
from footplate.runs.lock import lock_file, locked
from footplate.store import RunPaths, Store, attempt_numbers

__all__ = ["check_unclaimed", "held"]


def held(store: Store, run: RunPaths) -> AbstractContextManager[object]:
    """
    What keeps a run of this machine from beginning meanwhile; of one elsewhere nothing does.

    Raises:
        RunBusyError: If another process works on it.
        StoreError: If its lock can't be written.
    """
    if run.namespace != LOCAL_NAMESPACE:
        return nullcontext()
    return locked(lock_file(store, run.namespace, run.name), run.name)


def check_unclaimed(store: Store, past: PastRun) -> None:
    """
    Make sure that a run has made no attempt since it was looked at.

    Raises:
        FencedError: If it has.
        StoreError: If the store does not tell.
    """
    newest = past.claims[-1].attempt if past.claims else 0
    if max(attempt_numbers(store, past.paths), default=0) != newest:
        raise FencedError(f"{past.paths.root} has begun to work again")
