"""The metric log of a run, and MLflow as a projection of it."""

from footplate.tracking.code import code_identity
from footplate.tracking.log import MetricLog, MetricPoint, MetricReader, read_points
from footplate.tracking.mlflow_run import MlflowRun, RunStatus, open_run
from footplate.tracking.projection import Projection, PublishResult, status_of
from footplate.tracking.publisher import Publisher
from footplate.tracking.sync import incomplete_runs, sync
from footplate.tracking.uri import experiment_name, open_hint, shown_uri, tracking_uri

__all__ = [
    "MetricLog",
    "MetricPoint",
    "MetricReader",
    "MlflowRun",
    "Projection",
    "PublishResult",
    "Publisher",
    "RunStatus",
    "code_identity",
    "experiment_name",
    "incomplete_runs",
    "open_hint",
    "open_run",
    "read_points",
    "shown_uri",
    "status_of",
    "sync",
    "tracking_uri",
]
