"""
The door to MLflow: importing it, connecting, and translating what it raises.

MLflow is imported when a client is made, never with this module.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from footplate.errors import MissingExtraError, TrackingError
from footplate.tracking.uri import shown_uri

__all__ = ["connect", "sqlite_file", "translated"]

# Unless the user has said otherwise: fail within seconds, since everything is tried again
# anyway; print nothing; report nothing to anybody.
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def connect(uri: str) -> Any:
    """
    A client of MLflow; a server is not asked anything yet.

    Raises:
        TrackingError: If the URI or the database behind it is no good.
        MissingExtraError: If MLflow is not installed.

    """
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
    with translated(uri, "open it"):
        if (database := sqlite_file(uri)) is not None:
            database.parent.mkdir(parents=True, exist_ok=True)
        return MlflowClient(tracking_uri=uri)


def sqlite_file(uri: str) -> Path | None:
    """The file of an SQLite database, or None if the URI is none of a file."""
    path = uri.removeprefix("sqlite:///")
    return Path(path) if path not in (uri, "", ":memory:") else None


@contextmanager
def translated(uri: str, action: str) -> Iterator[None]:
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
