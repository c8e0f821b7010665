"""
The one door to MLflow.

MLflow is imported when a run is opened, and all that it and the libraries below it raise
becomes a :class:`~footplate.errors.TrackingError` here.

One Job UID has one MLflow run. It is found by its tag; to create it, processes race for a
create-if-absent object beside the metric log, since MLflow has nothing of that kind.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from footplate.errors import (
    MissingExtraError,
    ObjectExistsError,
    ObjectNotFoundError,
    TrackingError,
)
from footplate.store import Claim, RunData, RunPaths, RunRecord, Store
from footplate.tracking.description import (
    JOB_UID,
    Description,
    additions,
    metric_name_tag,
    nonfinite_tag,
)
from footplate.tracking.log import MetricPoint
from footplate.tracking.naming import accepted_name, shortened
from footplate.tracking.uri import shown_uri

__all__ = ["MlflowRun", "RunStatus", "open_run"]

RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

_CANDIDATE = "footplate.candidate_for"
_REPLACES = "footplate.replaces"

# What MLflow takes in one request.
_METRICS_LIMIT = 1000
_TEXTS_LIMIT = 100

# Unless the user has said otherwise: fail within seconds, since everything is tried again
# anyway; print nothing; report nothing to anybody.
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


class MlflowRun:
    """
    An MLflow run that is open for writing, by one thread; made by :func:`open_run`.

    Attributes:
        run_id: MLflow's own identity of it.
        url: Its page, or None if the tracking URI is no web server.
    """

    def __init__(self, client: Any, uri: str, experiment_id: str, run_id: str) -> None:
        self._client = client
        self._uri = uri
        self.run_id = run_id
        self.url = _page(uri, experiment_id, run_id)
        self._last: dict[str, int] | None = None
        self._tags: dict[str, str] = {}

    def describe(
        self, record: RunRecord, data: RunData | None, claims: Sequence[Claim], location: str
    ) -> None:
        """Record parameters and tags that are not there yet; no parameter is ever changed."""
        with _translated(self._uri, "read parameters"):
            there = self._client.get_run(self.run_id).data
        known = Description(dict(there.params), dict(there.tags))
        new = additions(known, record=record, data=data, claims=claims, location=location)
        self._send(new.params, new.tags)

    def log(self, points: Sequence[MetricPoint]) -> int:
        """
        Record metrics.

        What MLflow has is skipped: for each metric, everything up to its last step. A value
        that is no finite number is not sent, for MLflow would store another one; a tag says
        when it was first seen.

        Args:
            points: Ordered by step within each attempt.

        Returns:
            How many values were sent.
        """
        if self._last is None:
            self._last = self._last_steps()
        metrics, tags = self._unsent(points, dict(self._last))
        self._send({}, tags)
        self._tags |= tags
        for batch in _batches(metrics, _METRICS_LIMIT):
            with _translated(self._uri, "record metrics"):
                self._client.log_batch(self.run_id, metrics=batch)
            self._last |= {metric.key: metric.step for metric in batch}
        return len(metrics)

    def resume(self) -> None:
        """Show the run as running (again)."""
        with _translated(self._uri, "set the status"):
            if self._client.get_run(self.run_id).info.status != "RUNNING":
                self._client.update_run(self.run_id, status="RUNNING")

    def end(self, status: RunStatus, ended_ms: int) -> None:
        """Show the run as ended, at a time in milliseconds since the epoch."""
        with _translated(self._uri, "set the status"):
            self._client.set_terminated(self.run_id, status, end_time=ended_ms)

    def _last_steps(self) -> dict[str, int]:
        # A run comes with the value of the highest step of each metric: one request, where the
        # history of every metric would be thousands.
        with _translated(self._uri, "read the last steps"):
            run = self._client.get_run(self.run_id)
            self._tags = dict(run.data.tags)
            return {metric.key: metric.step for metric in run.to_proto().data.metrics}

    def _unsent(
        self, points: Sequence[MetricPoint], last: dict[str, int]
    ) -> tuple[list[Any], dict[str, str]]:
        """The metrics after the last steps, and the tags that go with them."""
        from mlflow.entities import Metric

        metrics, tags = [], dict[str, str]()
        for point in points:
            for name, value in point.metrics.items():
                key = accepted_name(name)
                if point.step <= last.get(key, -1):
                    continue
                if key != name:
                    tags[metric_name_tag(key)] = shortened(name)
                if math.isfinite(value):
                    last[key] = point.step
                    metrics.append(Metric(key, value, point.time_ms, point.step))
                else:
                    tags.setdefault(nonfinite_tag(key), f"{value} at step {point.step}")
        return metrics, {key: tags[key] for key in tags if key not in self._tags}

    def _send(self, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        from mlflow.entities import Param, RunTag

        for items in _batches(list(params.items()), _TEXTS_LIMIT):
            with _translated(self._uri, "record parameters"):
                batch = [Param(key, value) for key, value in items]
                self._client.log_batch(self.run_id, params=batch)
        for items in _batches(list(tags.items()), _TEXTS_LIMIT):
            with _translated(self._uri, "record tags"):
                batch = [RunTag(key, value) for key, value in items]
                self._client.log_batch(self.run_id, tags=batch)


def open_run(
    uri: str, experiment: str, *, store: Store, run: RunPaths, record: RunRecord
) -> MlflowRun:
    """
    The MLflow run of a run, created if there is none.

    One that somebody has deleted stays deleted: a new one is made and linked to it by a tag.

    Raises:
        TrackingError: If MLflow cannot be reached or refuses.
        MissingExtraError: If MLflow is not installed.
    """
    client = _client(uri)
    with _translated(uri, "open the run"):
        experiment_id = _experiment_id(client, uri, experiment)
        run_id = _find(client, experiment_id, JOB_UID, run.uid)
        if run_id is None:
            run_id = _create(client, experiment_id, store, run, record)
        # Perhaps in another experiment: the job's may have been changed since.
        experiment_id = client.get_run(run_id).info.experiment_id
    return MlflowRun(client, uri, experiment_id, run_id)


def _page(uri: str, experiment_id: str, run_id: str) -> str | None:
    if not uri.startswith(("http://", "https://")):
        return None
    return f"{shown_uri(uri).rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def _client(uri: str) -> Any:
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow.tracking import MlflowClient
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mlflow":
            raise
        raise MissingExtraError("train", ("mlflow",)) from error
    if "MLFLOW_LOGGING_LEVEL" not in os.environ:
        for chatty in ("alembic", "mlflow"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
    with _translated(uri, "open it"):
        if (database := _sqlite_file(uri)) is not None:
            database.parent.mkdir(parents=True, exist_ok=True)
        return MlflowClient(tracking_uri=uri)


def _sqlite_file(uri: str) -> Path | None:
    path = uri.removeprefix("sqlite:///")
    return Path(path) if path not in (uri, "", ":memory:") else None


def _experiment_id(client: Any, uri: str, name: str) -> str:
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


def _find(client: Any, experiment_id: str, tag: str, uid: str) -> str | None:
    """The oldest active run with a tag."""
    found = _tagged(client, experiment_id, tag, uid)
    return found[0] if found else None


def _tagged(client: Any, experiment_id: str, tag: str, uid: str) -> list[str]:
    runs = client.search_runs(
        [experiment_id], f"tags.`{tag}` = '{uid}'", order_by=["attributes.start_time ASC"]
    )
    return [run.info.run_id for run in runs]


def _artifact_location(uri: str, experiment: str) -> str | None:
    """Beside the database, since MLflow's default is the current folder; else the server's."""
    database = _sqlite_file(uri)
    if database is None:
        return None
    return f"{(database.parent / 'mlartifacts').as_uri()}/{quote(experiment, safe='')}"


def _create(client: Any, experiment_id: str, store: Store, run: RunPaths, record: RunRecord) -> str:
    """
    Create the run, or take the one that another process was faster to create.

    A run is a candidate until its identity stands in the store; only then does it get the tag
    by which it is found. Each number stands for one run: the next is used when that is gone.
    """
    tags = {_CANDIDATE: run.uid}
    for number in itertools.count(1):
        slot = f"{run.root}/mlflow/{number:04d}.json"
        run_id = _read_slot(store, slot)
        if run_id is None:
            name = f"{run.name}-{run.uid[:8]}"
            start_ms = int(record.created * 1000)
            created = client.create_run(experiment_id, start_ms, tags, name).info.run_id
            run_id = _fill_slot(store, slot, created)
        stage = _stage(client, run_id)
        if stage == "active":
            client.set_tag(run_id, JOB_UID, run.uid)
            _delete_candidates(client, experiment_id, run.uid, chosen=run_id)
            return run_id
        if stage == "deleted":
            tags[_REPLACES] = run_id
    raise AssertionError("unreachable")


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


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@contextmanager
def _translated(uri: str, action: str) -> Iterator[None]:
    """Turn the errors of MLflow, its database and its connections into ours."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    where = shown_uri(uri)
    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, ValueError) as error:
        causes = list(_causes(error))
        unreachable = any(isinstance(cause, OSError) for cause in causes)
        cause = causes[-1] if unreachable else error
        reason = str(cause).partition("\n")[0].replace(uri, where)
        if unreachable:
            raise TrackingError(
                f"cannot reach MLflow at {where}: {reason}",
                "Check tracking.uri, and that the server answers there.",
            ) from error
        raise TrackingError(f"MLflow at {where} refused to {action}: {reason}") from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it, the root last."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
