"""
Which MLflow run is that of a Job UID.

It is found by its tag. To create it, processes race for a create-if-absent object beside the
metric log, since MLflow has nothing of that kind: one Job UID never has two runs.

Everything here raises MLflow's own errors; the caller translates them.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from footplate.errors import ObjectExistsError, ObjectNotFoundError, TrackingError
from footplate.store import RunPaths, RunRecord, Store
from footplate.tracking.description import JOB_UID
from footplate.tracking.mlflow_client import sqlite_file
from footplate.tracking.uri import shown_uri

__all__ = ["experiment_id_of", "find_or_create"]

_CANDIDATE = "footplate.candidate_for"
_REPLACES = "footplate.replaces"


def experiment_id_of(client: Any, uri: str, name: str) -> str:
    """
    The identity of an experiment, created if there is none.

    Raises:
        TrackingError: If somebody has deleted it: then MLflow neither finds nor creates it.

    """
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name, _artifact_location(uri, name)))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = client.get_experiment_by_name(name)
    if experiment.lifecycle_stage != "active":
        raise TrackingError(
            f"the MLflow experiment {name!r} at {shown_uri(uri)} has been deleted",
            "Restore it (mlflow experiments restore --experiment-id "
            f"{experiment.experiment_id}), or name another one as tracking.experiment.",
        )
    return str(experiment.experiment_id)


def find_or_create(
    client: Any, experiment_id: str, *, store: Store, run: RunPaths, record: RunRecord
) -> str:
    """
    The identity of the MLflow run of a run.

    One that somebody has deleted stays deleted: a new one is made and linked to it by a tag.
    """
    found = _tagged(client, experiment_id, JOB_UID, run.uid)
    return found[0] if found else _create(client, experiment_id, store, run, record)


def _create(client: Any, experiment_id: str, store: Store, run: RunPaths, record: RunRecord) -> str:
    """
    Create the run, or take the one that another process was faster to create.

    A run is a candidate until its identity stands in the store; only then does it get the tag
    by which it is found. Each number stands for one run: the next is used when that is gone.
    """
    from mlflow.entities import RunTag

    tags = {_CANDIDATE: run.uid}
    number = 0
    while True:
        number += 1
        slot = run.mlflow(number)
        run_id = _read_slot(store, slot)
        if run_id is None:
            name = f"{run.name}-{run.uid[:8]}"
            start_ms = int(record.created * 1000)
            created = client.create_run(experiment_id, start_ms, tags, name).info.run_id
            run_id = _fill_slot(store, slot, created)
        stage = _stage(client, run_id)
        if stage == "active":
            # As a batch, since only that takes the same new tag from several processes at once.
            client.log_batch(run_id, tags=[RunTag(JOB_UID, run.uid)])
            _delete_candidates(client, experiment_id, run.uid, chosen=run_id)
            return run_id
        if stage == "deleted":
            tags[_REPLACES] = run_id


def _read_slot(store: Store, slot: str) -> str | None:
    try:
        return str(json.loads(store.get(slot))["run_id"])
    except ObjectNotFoundError:
        return None


def _fill_slot(store: Store, slot: str, run_id: str) -> str:
    """Write the identity of a run, unless another one is written; which one it is."""
    try:
        store.create(slot, json.dumps({"run_id": run_id}).encode())
    except ObjectExistsError:
        return str(json.loads(store.get(slot))["run_id"])
    return run_id


def _delete_candidates(client: Any, experiment_id: str, uid: str, *, chosen: str) -> None:
    """Remove what lost the race, and what a repeated request or a kill has left."""
    for run_id in _tagged(client, experiment_id, _CANDIDATE, uid):
        if run_id != chosen:
            client.delete_run(run_id)


def _stage(client: Any, run_id: str) -> str | None:
    """``active`` or ``deleted``; None if there is no such run, or it is on another server."""
    from mlflow.exceptions import MlflowException

    try:
        return str(client.get_run(run_id).info.lifecycle_stage)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def _tagged(client: Any, experiment_id: str, tag: str, uid: str) -> list[str]:
    """Active runs with a tag, the oldest first."""
    runs = client.search_runs(
        [experiment_id], f"tags.`{tag}` = '{uid}'", order_by=["attributes.start_time ASC"]
    )
    return [run.info.run_id for run in runs]


def _artifact_location(uri: str, experiment: str) -> str | None:
    """Beside the database, since MLflow's default is the current folder; else the server's."""
    database = sqlite_file(uri)
    if database is None:
        return None
    return f"{(database.parent / 'mlartifacts').as_uri()}/{quote(experiment, safe='')}"
