"""What is in the store of a job's runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from footplate.errors import RunNotFoundError
from footplate.store import (
    CODE_ARCHIVES,
    AttemptResult,
    Claim,
    RunPaths,
    RunRecord,
    Store,
    read_claims,
    read_record_if_there,
)

__all__ = ["PastRun", "find_run_at", "find_runs", "namespaces", "newest_run"]

# What stands beside the namespaces.
_NO_NAMESPACES = (CODE_ARCHIVES, "datasets")


@dataclass(frozen=True, kw_only=True, slots=True)
class PastRun:
    """
    A run in the store.

    Attributes:
        record: What was asked for.
        claims: Its attempts, oldest first.
        result: How the newest attempt ended; None if it was killed or has not ended.
    """

    record: RunRecord
    claims: tuple[Claim, ...]
    result: AttemptResult | None

    @property
    def paths(self) -> RunPaths:
        """Where it stands in the store."""
        return self.record.paths

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.result is not None and self.result.status == "succeeded"

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec it was last run with."""
        return self.claims[-1].spec if self.claims else self.record.spec


def namespaces(store: Store) -> list[str]:
    """The namespaces that have runs in a store, sorted."""
    return [name for name in store.folders("") if name not in _NO_NAMESPACES]


def find_runs(store: Store, namespace: str, name: str) -> list[PastRun]:
    """All runs of a name, oldest first."""
    runs = (
        find_run_at(store, RunPaths(namespace=namespace, name=name, uid=uid))
        for uid in store.folders(f"{namespace}/{name}")
    )
    return sorted((run for run in runs if run is not None), key=lambda run: run.record.created)


def newest_run(store: Store, namespace: str, name: str) -> PastRun:
    """
    The newest run of a name.

    Raises:
        RunNotFoundError: If there is none.
    """
    runs = find_runs(store, namespace, name)
    if not runs:
        raise RunNotFoundError(
            f"there is no run named {name} in {store.uri}/{namespace}",
            "Start one with: footplate run SPEC",
        )
    return runs[-1]


def find_run_at(store: Store, paths: RunPaths) -> PastRun | None:
    """
    The run at a place, or None if there is none.

    Raises:
        StoreError: If its records can't be read.
    """
    record = read_record_if_there(store, paths.record, RunRecord)
    if record is None:
        return None
    claims = tuple(read_claims(store, paths))
    result = None
    if claims:
        newest = paths.attempt(claims[-1].attempt)
        result = read_record_if_there(store, newest.result, AttemptResult)
    return PastRun(record=record, claims=claims, result=result)
