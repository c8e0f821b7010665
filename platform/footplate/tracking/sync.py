"""Bringing MLflow up to date once, from anywhere that can read the store."""

from __future__ import annotations

import dataclasses
import json

from footplate.errors import RunNotFoundError
from footplate.store import (
    AttemptResult,
    RunPaths,
    RunRecord,
    Store,
    attempt_numbers,
    read_record_if_there,
)
from footplate.tracking.projection import Projection, PublishResult, status_of

__all__ = ["incomplete_runs", "sync"]


def sync(store: Store, run: RunPaths, *, uri: str, experiment: str) -> PublishResult:
    """
    Publish everything of a run that MLflow does not have yet.

    If the newest attempt has ended and no other one follows, the run is shown as ended and the
    attempt's result says from now on that MLflow is complete; otherwise it is shown as running.

    Raises:
        TrackingError: If MLflow cannot be reached or refuses.
        StoreError: If the store cannot be read.
        MissingExtraError: If MLflow is not installed.
    """
    projection = Projection(store, run, uri=uri, experiment=experiment)
    # Read first: what was flushed before the attempt ended is then published.
    number, ended = _newest_result(store, run)
    projection.advance()
    if ended is None or ended.goes_on:
        projection.set_status("RUNNING")
        return projection.result(complete=True)
    projection.set_status(status_of(ended), ended_ms=int(ended.ended * 1000))
    published = projection.result(complete=True)
    _note(store, run.attempt(number).result, published)
    return published


def incomplete_runs(
    store: Store, name: str, *, uid: str | None = None, namespace: str = "local"
) -> list[RunPaths]:
    """
    Runs of a name of which something may be missing in MLflow, newest first.

    These are all whose newest attempt does not say that everything arrived: after an outage,
    after a kill, and while they run.

    Args:
        uid: Only this run, be it complete or not.

    Raises:
        RunNotFoundError: If no run of that name (and UID) is in the store.
    """
    created: dict[RunPaths, float] = {}
    for folder in store.folders(f"{namespace}/{name}"):
        run = RunPaths(namespace=namespace, name=name, uid=folder)
        if uid in (None, folder) and (record := read_record_if_there(store, run.record, RunRecord)):
            created[run] = record.created
    if not created:
        which = f"run {uid} of {name}" if uid else f"run of {name}"
        raise RunNotFoundError(f"there is no {which} in {store.uri}", "Check name, uid and store.")
    newest_first = sorted(created, key=lambda run: created[run], reverse=True)
    return [run for run in newest_first if uid or not _is_complete(store, run)]


def _is_complete(store: Store, run: RunPaths) -> bool:
    """Whether nothing is left to publish: all of it arrived, or there never was anything."""
    number, ended = _newest_result(store, run)
    return number == 0 or (ended is not None and ended.tracking.get("complete") is True)


def _newest_result(store: Store, run: RunPaths) -> tuple[int, AttemptResult | None]:
    """The number of the newest attempt, 0 if there is none, and how it ended, if it did."""
    numbers = attempt_numbers(store, run)
    if not numbers:
        return 0, None
    return numbers[-1], read_record_if_there(store, run.attempt(numbers[-1]).result, AttemptResult)


def _note(store: Store, path: str, published: PublishResult) -> None:
    # Edited as JSON: a newer driver may have written more than this version knows.
    record = json.loads(store.get(path))
    record["tracking"] = dataclasses.asdict(published)
    store.put(path, json.dumps(record, indent=2).encode())
