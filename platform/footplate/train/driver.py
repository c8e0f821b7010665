"""
The driver: one attempt of a run, from its claim to its result.

It is the same process on a laptop (started by ``footplate run``) and in a cluster (started by the
RayJob): settle the data, find the checkpoint to go on from, claim the attempt, let Ray Train run
the ranks, keep MLflow up to date meanwhile, write down how it ended.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from footplate.checkpoints import (
    CheckpointManifest,
    collect_orphans,
    committed,
    counted,
    find_resume_point,
)
from footplate.errors import FencedError, FootplateError, StoreError, TrainingError
from footplate.spec import Job
from footplate.store import (
    AttemptPaths,
    AttemptResult,
    Claim,
    DataVersion,
    End,
    Failure,
    Progress,
    RunPaths,
    RunRecord,
    Store,
    claim_next,
    counted_until,
    open_store,
    read_claims,
    read_record_if_there,
    to_json,
)
from footplate.tracking import (
    Publisher,
    code_identity,
    experiment_name,
    read_points,
    status_of,
    tracking_uri,
)
from footplate.train.datasets import settle_data
from footplate.train.failure import cause_of, failure_of
from footplate.train.rank import RankConfig
from footplate.train.trainer import fit, ray_cluster

__all__ = ["drive"]

log = logging.getLogger(__name__)

# How many drivers may be faster in claiming an attempt before something else must be wrong.
_CLAIM_TRIES = 10
# How long the end of a run may wait for MLflow.
_TRACKING_DEADLINE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """What this driver works on."""

    record: RunRecord
    job: Job
    store: Store
    run: RunPaths
    claim: Claim
    resume: CheckpointManifest | None

    @property
    def paths(self) -> AttemptPaths:
        return self.run.attempt(self.claim.attempt)

    @property
    def code(self) -> Path:
        return Path(self.job.path(self.job.code))

    def say(self, stage: Literal["preparing", "starting"]) -> None:
        """Show what is being done before the ranks report themselves."""
        step = self.resume.step if self.resume else 0
        progress = Progress(
            stage=stage,
            time=time.time(),
            step=step,
            started_at_step=step,
            checkpoint=self.claim.starts_from,
        )
        self.store.put(self.paths.progress, to_json(progress))


def drive(record: RunRecord, folder: Path, *, local: bool) -> AttemptResult:
    """
    Make one attempt.

    Args:
        record: Of the run.
        folder: What relative paths of its spec refer to.
        local: Whether to start Ray on this machine and own it.

    Returns:
        How it ended; the same is in the store, if the store could take it.

    Raises:
        FootplateError: If the attempt could not even be claimed.
    """
    started = time.time()
    job = Job.from_dict(record.spec, folder=folder, source=record.name)
    store = open_store(job)
    run = RunPaths(namespace=record.namespace, name=record.name, uid=record.uid)
    claim, resume = _claim(record, job, store, run)
    attempt = _Attempt(record=record, job=job, store=store, run=run, claim=claim, resume=resume)
    if local:
        collect_orphans(store, run)
    publisher = _publisher(attempt)
    end, failure = _train(attempt, local=local)
    result = _result(attempt, end, failure, started)
    if publisher is not None:
        published = publisher.close(status_of(result), _TRACKING_DEADLINE_S)
        result = result.model_copy(update={"tracking": asdict(published)})
    _write_down(attempt, result)
    return result


def _publisher(attempt: _Attempt) -> Publisher | None:
    """What keeps MLflow up to date, started; None if the job has no MLflow."""
    uri = tracking_uri(attempt.job)
    if uri is None:
        log.warning("no tracking.uri, and the store is no folder: MLflow is not used")
        return None
    publisher = Publisher(
        attempt.store,
        attempt.run,
        attempt=attempt.claim.attempt,
        uri=uri,
        experiment=experiment_name(attempt.job),
    )
    publisher.start()
    return publisher


def _result(
    attempt: _Attempt, end: End | None, failure: Failure | None, started: float
) -> AttemptResult:
    status: Literal["succeeded", "failed", "interrupted"] = "failed"
    if failure is None and end is not None:
        status = "interrupted" if end.stopped else "succeeded"
    return AttemptResult(
        status=status,
        started=started,
        ended=time.time(),
        steps=end.step if end else _steps_so_far(attempt),
        epochs=end.epochs if end else 0.0,
        metrics=_newest_metrics(attempt.store, attempt.run),
        checkpoint=end.checkpoint if end else _newest_checkpoint(attempt),
        failure=failure,
    )


def _claim(
    record: RunRecord, job: Job, store: Store, run: RunPaths
) -> tuple[Claim, CheckpointManifest | None]:
    """Claim the next attempt; the claim says what it starts from, and so what of others counts."""
    for _ in range(_CLAIM_TRIES):
        claims = read_claims(store, run)
        resume, rejected = find_resume_point(store, run, claims)
        for reason in rejected:
            log.warning("passed over checkpoint %s", reason)
        claim = Claim(
            attempt=claims[-1].attempt + 1 if claims else 1,
            token=secrets.token_hex(8),
            host=socket.gethostname(),
            pid=os.getpid(),
            claimed=time.time(),
            starts_from=str(resume.name) if resume else None,
            spec=record.spec,
            code=code_identity(Path(job.path(job.code))),
        )
        try:
            return claim_next(store, run, claim), resume
        except FencedError:
            continue
    raise FencedError(f"{_CLAIM_TRIES} other drivers claimed attempts of {run.root} meanwhile")


def _train(attempt: _Attempt, *, local: bool) -> tuple[End | None, Failure | None]:
    """Run the ranks; their last word, and what went wrong."""
    try:
        attempt.say("preparing")
        data = settle_data(attempt.job, attempt.store, attempt.run)
        attempt.say("starting")
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
    attempt: _Attempt, data: dict[str, DataVersion], *, local: bool
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


def _last_word(attempt: _Attempt) -> End:
    end = read_record_if_there(attempt.store, attempt.paths.end, End)
    if end is None:
        raise TrainingError(
            "the ranks ended without rank 0's last word, so this attempt has not succeeded",
            "Usual cause: the training code ended the process. Return from the function instead.",
        )
    return end


def _newest_metrics(store: Store, run: RunPaths) -> dict[str, float]:
    newest: dict[str, float] = {}
    for point in read_points(store, run):
        newest.update(point.metrics)
    return newest


def _steps_so_far(attempt: _Attempt) -> int:
    progress = read_record_if_there(attempt.store, attempt.paths.progress, Progress)
    return progress.step if progress else 0


def _newest_checkpoint(attempt: _Attempt) -> str | None:
    counting = counted(
        committed(attempt.store, attempt.run),
        counted_until(read_claims(attempt.store, attempt.run)),
    )
    return str(counting[-1]) if counting else None


def _write_down(attempt: _Attempt, result: AttemptResult) -> None:
    try:
        attempt.store.put(attempt.paths.result, to_json(result))
    except StoreError as error:
        # Whoever started this process still learns how it ended from its exit code and output.
        log.error("the result can't be written: %s", error)
