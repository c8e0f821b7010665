"""Where MLflow shows a run that is somewhere else."""

from __future__ import annotations

import json
import threading

from footplate.errors import FootplateError, ObjectNotFoundError
from footplate.runs.store_view import job_of
from footplate.spec import Job
from footplate.store import RunPaths, RunRecord, Store, open_store
from footplate.tracking import open_hint, tracking_uri

__all__ = ["mlflow_page"]

_STORE_S = 5.0


def mlflow_page(record: RunRecord) -> str | None:
    """
    The page of a run, for a browser.

    Returns:
        The front page of the server as long as the store does not say which run it is; for a
        database the command that shows it; None if the run uses no MLflow.

    Raises:
        SpecError: If the spec is one that this version does not know.
    """
    job = job_of(record)
    uri = tracking_uri(job)
    if uri is None:
        return None
    if not uri.startswith(("http://", "https://")):
        return open_hint(uri)
    front = uri.rstrip("/")
    run_id = _read_within(_STORE_S, job, record.paths)
    # MLflow goes on from there to the page with the experiment, which the store doesn't know.
    return f"{front}/#/runs/{run_id}" if run_id else front


def _read_within(seconds: float, job: Job, run: RunPaths) -> str | None:
    """What the store says, unless it doesn't answer in time."""
    found: list[str | None] = []

    def read() -> None:
        try:
            found.append(_newest_run_id(open_store(job), run))
        except FootplateError:
            found.append(None)

    reading = threading.Thread(target=read, name="store", daemon=True)
    reading.start()
    reading.join(seconds)
    return found[0] if found else None


def _newest_run_id(store: Store, run: RunPaths) -> str | None:
    """Each number names a run that has taken the place of the one before."""
    run_id, number = None, 0
    while True:
        number += 1
        try:
            run_id = str(json.loads(store.get(run.mlflow(number)))["run_id"])
        except ObjectNotFoundError:
            return run_id
