"""Where MLflow records a job, and how a person opens it."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from footplate.spec import Job

__all__ = ["experiment_name", "open_hint", "shown_uri", "tracking_uri"]

_SQLITE = "sqlite:///"


def tracking_uri(job: Job) -> str | None:
    """
    The MLflow tracking URI of a job, its relative paths made absolute.

    Returns:
        What the job says; otherwise an SQLite file beside the store's folder; None if the
        store is a bucket and the job names no server: then MLflow is not used, and the metric
        log in the store is the only record.
    """
    if job.tracking.uri is not None:
        return _absolute(job, job.tracking.uri)
    store = job.path(job.store.uri)
    return None if "://" in store else f"{_SQLITE}{Path(store).parent / 'mlflow.db'}"


def experiment_name(job: Job) -> str:
    """The MLflow experiment of a job."""
    return job.tracking.experiment or job.name


def open_hint(uri: str, url: str | None = None) -> str:
    """
    How a person looks at what is recorded.

    Args:
        uri: The tracking URI.
        url: The page of the run, if there is a server.

    Returns:
        The page, or the command that shows a database.
    """
    if url is not None:
        return url
    if uri.startswith(("http://", "https://")):
        return uri
    return f"mlflow ui --backend-store-uri {shlex.quote(uri)}"


def shown_uri(uri: str) -> str:
    """A URI without the credentials that may be in it, for messages and records."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc:
        return uri
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _absolute(job: Job, uri: str) -> str:
    if uri.startswith(_SQLITE):
        path = uri.removeprefix(_SQLITE)
        return f"{_SQLITE}{job.path(path)}" if path and path != ":memory:" else uri
    # "databricks" and "databricks:profile" are URIs to MLflow, and so is "file:folder".
    if uri.startswith(("databricks", "file:")):
        return uri
    return job.path(uri)
