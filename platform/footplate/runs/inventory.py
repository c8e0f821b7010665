"""All runs of a store, and where each stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from footplate.errors import StoreError
from footplate.runs.history import PastRun, find_run_at, namespaces
from footplate.runs.standing import Standing, standing_of
from footplate.store import RunPaths, Store, ask_many

__all__ = ["StoredRun", "stored_runs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRun:
    """
    A run in a store.

    Attributes:
        past: What stands in its records; None if they can't be read.
        standing: Where it stands; None if its records can't be read.
        trouble: Why they can't be.
    """

    paths: RunPaths
    past: PastRun | None = None
    standing: Standing | None = None
    trouble: str | None = None


def stored_runs(store: Store, *, now: float, namespace: str | None = None) -> list[StoredRun]:
    """
    The runs of a store, newest first; those whose records can't be read come last.

    Args:
        now: Seconds since the epoch.
        namespace: Of this one alone; left out: of all.

    Raises:
        StoreError: If it can't be listed.
    """
    places = list(_all_paths(store, namespace))
    looks = ask_many(store, lambda paths: _look(store, paths, now), places)
    found = [run for run in looks if run is not None]
    return sorted(found, key=lambda run: run.past.record.created if run.past else 0, reverse=True)


def _all_paths(store: Store, namespace: str | None) -> Iterator[RunPaths]:
    for each in namespaces(store) if namespace is None else [namespace]:
        for name in store.folders(each):
            for uid in store.folders(f"{each}/{name}"):
                yield RunPaths(namespace=each, name=name, uid=uid)


def _look(store: Store, paths: RunPaths, now: float) -> StoredRun | None:
    try:
        past = find_run_at(store, paths)
        if past is None:
            return None
        return StoredRun(paths=paths, past=past, standing=standing_of(store, past, now=now))
    except StoreError as error:
        return StoredRun(paths=paths, trouble=error.message)
