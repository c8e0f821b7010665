"""
The driver: one attempt of a run, from its claim to its result.

It is the same process on a laptop (started by ``footplate run``) and in a cluster (started by the
RayJob): settle the data, find the checkpoint to go on from, claim the attempt, let Ray Train run
the ranks, keep MLflow up to date meanwhile, write down how it ended.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from footplate.checkpoints import collect_orphans, counting
from footplate.errors import FootplateError, StoreError, TrainingError
from footplate.spec import Job
from footplate.store import (
    AttemptResult,
    DataVersion,
    End,
    Failure,
    Progress,
    RunRecord,
    open_store,
    read_record_if_there,
    to_json,
)
from footplate.tracking import (
    Publisher,
    experiment_name,
    status_of,
    tracking_uri,
)
from footplate.train.attempt import Attempt, claim_attempt
from footplate.train.datasets import settle_data
from footplate.train.failure import cause_of, failure_of
from footplate.train.rank import RankConfig
from footplate.train.trainer import fit, ray_cluster

__all__ = ["drive"]

log = logging.getLogger(__name__)

# How long the end of a run may wait for MLflow.
_TRACKING_DEADLINE_S = 30.0


def drive(
    record: RunRecord, folder: Path, *, local: bool, on_claim: Callable[[int], None]
) -> AttemptResult:
    """
    Make one attempt.

    Args:
        record: Of the run.
        folder: What relative paths of its spec refer to.
        local: Whether to start Ray on this machine and own it.
        on_claim: Is told the number of the attempt.

    Returns:
        How it ended; the same is in the store, if the store could take it.

    Raises:
        FootplateError: If the attempt could not even be claimed.
    """
    started = time.time()
    job = Job.from_dict(record.spec, folder=folder, source=record.name)
    store = open_store(job)
    attempt = claim_attempt(record, job, store)
    on_claim(attempt.claim.attempt)
    if local and store.folder is not None:
        # The lock of that folder says that nobody else works on the run.
        collect_orphans(store, attempt.run)
    publisher = _publisher(attempt)
    end, failure = _train(attempt, local=local)
    result = _result(attempt, end, failure, started)
    if publisher is not None:
        published = publisher.close(status_of(result), _TRACKING_DEADLINE_S)
        result = result.model_copy(update={"tracking": asdict(published)})
    _write_down(attempt, result)
    return result


def _publisher(attempt: Attempt) -> Publisher | None:
    """What keeps MLflow up to date, started; None if the job has no MLflow."""
    uri = tracking_uri(attempt.job)
    if uri is None:
        attempt.note("MLflow is not used: there is no tracking.uri, and the store is no folder")
        return None
    publisher = Publisher(
        attempt.store,
        attempt.run,
        attempt=attempt.claim.attempt,
        uri=uri,
        experiment=experiment_name(attempt.job),
        report=attempt.note,
    )
    publisher.start()
    return publisher


def _result(
    attempt: Attempt, end: End | None, failure: Failure | None, started: float
) -> AttemptResult:
    status: Literal["succeeded", "failed", "interrupted"] = "failed"
    if failure is None and end is not None:
        status = "interrupted" if end.stopped else "succeeded"
    so_far = end or _progress(attempt)
    return AttemptResult(
        status=status,
        started=started,
        ended=time.time(),
        steps=max(so_far.step if so_far else 0, (failure and failure.step) or 0),
        epochs=end.epochs if end else 0.0,
        metrics=so_far.metrics if so_far else {},
        checkpoint=end.checkpoint if end else _newest_checkpoint(attempt),
        failure=failure,
    )


def _train(attempt: Attempt, *, local: bool) -> tuple[End | None, Failure | None]:
    """Run the ranks; their last word, and what went wrong."""
    try:
        attempt.stage("preparing")
        data = settle_data(attempt.job, attempt.store, attempt.run)
        attempt.stage("starting")
        failed = _run_ranks(attempt, data, local=local)
        if failed:
            return None, cause_of(attempt.store, attempt.paths, failed, attempt.code)
        return _last_word(attempt), None
    except FootplateError as error:
        return None, failure_of(error, rank=None, step=None, folder=attempt.code)
    except Exception as error:  # no code of the user's runs here, so it is Ray's fault, or ours
        log.exception("the driver failed")
        ours = TrainingError(f"the driver failed: {type(error).__name__}: {error}")
        return None, failure_of(ours, rank=None, step=None, folder=attempt.code)


def _run_ranks(
    attempt: Attempt, data: dict[str, DataVersion], *, local: bool
) -> dict[int, BaseException]:
    config = RankConfig(
        record=attempt.record.model_dump_json(),
        attempt=attempt.claim.attempt,
        resume=attempt.claim.starts_from,
        data={name: version.model_dump_json() for name, version in data.items()},
        folder=str(attempt.job.folder),
    )
    with tempfile.TemporaryDirectory(prefix="footplate-ray-") as scratch:
        own = attempt.store.folder
        ray_folder = own / attempt.paths.ray if own else Path(scratch)
        with ray_cluster(attempt.job, local=local):
            return fit(attempt.job, config, ray_folder, local=local)


def _last_word(attempt: Attempt) -> End:
    end = read_record_if_there(attempt.store, attempt.paths.end, End)
    if end is None:
        raise TrainingError(
            "the ranks ended without rank 0's last word, so this attempt has not succeeded",
            "Usual cause: the training code ended the process. Return from the function instead.",
        )
    if end.step < end.total_steps and not end.stopped:
        attempt.note(f"the training function returned after step {end.step} of {end.total_steps}")
    return end


def _progress(attempt: Attempt) -> Progress | None:
    """How far the ranks said they were; None where the store does not tell."""
    try:
        return read_record_if_there(attempt.store, attempt.paths.progress, Progress)
    except StoreError:
        return None


def _newest_checkpoint(attempt: Attempt) -> str | None:
    """What the next attempt will go on from, as far as the store tells."""
    try:
        names = counting(attempt.store, attempt.run)
    except StoreError:
        return None
    return str(names[-1]) if names else None


def _write_down(attempt: Attempt, result: AttemptResult) -> None:
    try:
        attempt.store.put(attempt.paths.result, to_json(result))
    except StoreError as error:
        # Whoever started this process still learns how it ended from its exit code and output.
        log.error("the result can't be written: %s", error)
