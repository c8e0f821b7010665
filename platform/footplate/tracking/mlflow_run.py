"""Writing to the MLflow run of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from footplate.store import Claim, RunData, RunPaths, RunRecord, Store
from footplate.tracking.description import Description, additions, metric_name_tag, nonfinite_tag
from footplate.tracking.log import MetricPoint
from footplate.tracking.mlflow_client import connect, translated
from footplate.tracking.mlflow_identity import experiment_id_of, find_or_create
from footplate.tracking.naming import accepted_name, shortened
from footplate.tracking.uri import shown_uri

__all__ = ["MlflowRun", "RunStatus", "open_run"]

RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

# What MLflow takes in one request.
_METRICS_LIMIT = 1000
_TEXTS_LIMIT = 100


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
        with translated(self._uri, "read parameters"):
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
            with translated(self._uri, "record metrics"):
                self._client.log_batch(self.run_id, metrics=batch)
            self._last |= {metric.key: metric.step for metric in batch}
        return len(metrics)

    def resume(self) -> None:
        """Show the run as running (again)."""
        with translated(self._uri, "set the status"):
            if self._client.get_run(self.run_id).info.status != "RUNNING":
                self._client.update_run(self.run_id, status="RUNNING")

    def end(self, status: RunStatus, ended_ms: int) -> None:
        """Show the run as ended, at a time in milliseconds since the epoch."""
        with translated(self._uri, "set the status"):
            self._client.set_terminated(self.run_id, status, end_time=ended_ms)

    def _last_steps(self) -> dict[str, int]:
        # A run comes with the value of the highest step of each metric: one request, where the
        # history of every metric would be thousands.
        with translated(self._uri, "read the last steps"):
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
            with translated(self._uri, "record parameters"):
                batch = [Param(key, value) for key, value in items]
                self._client.log_batch(self.run_id, params=batch)
        for items in _batches(list(tags.items()), _TEXTS_LIMIT):
            with translated(self._uri, "record tags"):
                batch = [RunTag(key, value) for key, value in items]
                self._client.log_batch(self.run_id, tags=batch)


def open_run(
    uri: str, experiment: str, *, store: Store, run: RunPaths, record: RunRecord
) -> MlflowRun:
    """
    The one MLflow run of a run, created if there is none.

    Raises:
        TrackingError: If MLflow cannot be reached or refuses.
        MissingExtraError: If MLflow is not installed.
    """
    client = connect(uri)
    with translated(uri, "open the run"):
        experiment_id = experiment_id_of(client, uri, experiment)
        run_id = find_or_create(client, experiment_id, store=store, run=run, record=record)
        # Perhaps in another experiment: the job's may have been changed since.
        experiment_id = client.get_run(run_id).info.experiment_id
    return MlflowRun(client, uri, experiment_id, run_id)


def _page(uri: str, experiment_id: str, run_id: str) -> str | None:
    if not uri.startswith(("http://", "https://")):
        return None
    return f"{shown_uri(uri).rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
