"""
MLflow as a projection of what stands in the store.

The driver's thread and ``footplate tracking sync`` run the same code: the one again and again,
the other once.
"""

from __future__ import annotations

from dataclasses import dataclass

from footplate.errors import TrackingError
from footplate.store import (
    AttemptResult,
    Claim,
    RunData,
    RunPaths,
    RunRecord,
    Store,
    attempt_numbers,
    check_not_fenced,
    read_record,
    read_record_if_there,
)
from footplate.tracking.log import MetricReader
from footplate.tracking.mlflow_run import MlflowRun, RunStatus, open_run
from footplate.tracking.uri import shown_uri

__all__ = ["Projection", "PublishResult", "status_of"]

_STATUS: dict[str, RunStatus] = {
    "succeeded": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishResult:
    """
    What has come of publishing.

    Attributes:
        uri: Of MLflow, without credentials.
        run_id: None if the run could not be opened.
        url: Of the run's page, if MLflow is a web server.
        status: What MLflow was last told.
        complete: Whether all of the log arrived, and the status with it.
        error: Why it is not complete.
        points_sent: Metric values sent by this process; what MLflow had already is not sent.
    """

    uri: str
    experiment: str
    run_id: str | None = None
    url: str | None = None
    status: RunStatus | None = None
    complete: bool = False
    error: str | None = None
    points_sent: int = 0


def status_of(result: AttemptResult) -> RunStatus:
    """MLflow's word for how an attempt ended."""
    return _STATUS[result.status]


class Projection:
    """
    Brings one MLflow run up to date with the store, as often as it is asked to.

    After any error it opens the run anew and learns from MLflow what has arrived, so it may
    simply be asked again.

    Args:
        attempt: Whose driver this is: the run is shown as running, and publishing stops when a
            newer attempt has been claimed. None for a client, which publishes what there is.
    """

    def __init__(
        self,
        store: Store,
        run: RunPaths,
        *,
        uri: str,
        experiment: str,
        attempt: int | None = None,
    ) -> None:
        self._store = store
        self._run = run
        self._uri = uri
        self._experiment = experiment
        self._attempt = attempt
        self._claims: list[Claim] = []
        self._target: MlflowRun | None = None
        self._data: RunData | None = None
        self._described: tuple[int, bool] | None = None
        self._reader = MetricReader(store, run)
        # What is reported outlives the target.
        self._run_id: str | None = None
        self._url: str | None = None
        self._status: RunStatus | None = None
        self._sent = 0

    def advance(self) -> None:
        """
        Publish what is new.

        Raises:
            TrackingError: If MLflow cannot be reached or refuses.
            StoreError: If the store cannot be read.
            FencedError: If a newer attempt has taken over.
        """
        self._check_not_fenced()
        self._look_for_claims()
        target = self._opened()
        try:
            self._describe(target)
            for points in self._reader.read(self._claims):
                # Asked after they were read: nothing that a fenced attempt has logged gets out.
                self._check_not_fenced()
                self._sent += target.log(points)
        except TrackingError:
            self._target = None
            raise

    def set_status(self, status: RunStatus, ended_ms: int | None = None) -> None:
        """
        Say how the run is.

        Args:
            ended_ms: When it ended, in milliseconds since the epoch; unless it is running.

        Raises:
            TrackingError: If MLflow cannot be reached or refuses.
            FencedError: If a newer attempt has taken over.
        """
        self._check_not_fenced()
        target = self._opened()
        try:
            if ended_ms is None:
                target.resume()
            else:
                target.end(status, ended_ms)
        except TrackingError:
            self._target = None
            raise
        self._status = status

    def result(self, *, complete: bool, error: str | None = None) -> PublishResult:
        """What has come of it so far."""
        return PublishResult(
            uri=shown_uri(self._uri),
            experiment=self._experiment,
            run_id=self._run_id,
            url=self._url,
            status=self._status,
            complete=complete,
            error=error,
            points_sent=self._sent,
        )

    def _look_for_claims(self) -> None:
        for number in attempt_numbers(self._store, self._run)[len(self._claims) :]:
            claim = read_record(self._store, self._run.attempt(number).claim, Claim)
            self._claims.append(claim)

    def _check_not_fenced(self) -> None:
        if self._attempt is not None:
            check_not_fenced(self._store, self._run, self._attempt)

    def _describe(self, target: MlflowRun) -> None:
        """Publish parameters and tags, again when there is another attempt or the data is known."""
        if self._data is None:
            self._data = read_record_if_there(self._store, self._run.data, RunData)
        known = (len(self._claims), self._data is not None)
        if known != self._described:
            record = read_record(self._store, self._run.record, RunRecord)
            location = self._store.locate(self._run.root)
            target.describe(record, self._data, self._claims, location)
            self._described = known

    def _opened(self) -> MlflowRun:
        if self._target is None:
            record = read_record(self._store, self._run.record, RunRecord)
            target = open_run(
                self._uri, self._experiment, store=self._store, run=self._run, record=record
            )
            if target.run_id != self._run_id:
                # Nothing of ours is in it yet.
                self._described = None
                self._reader = MetricReader(self._store, self._run)
            if self._attempt is not None:
                target.resume()
                self._status = "RUNNING"
            self._run_id, self._url, self._target = target.run_id, target.url, target
        return self._target
