"""
The driver: one attempt of a run, from its claim to its result.

It is the same process on a laptop (started by ``footplate run``) and in a cluster (started by the
RayJob): claim the attempt, settle the data, let Ray Train run the ranks, keep MLflow up to date
meanwhile, write down how it ended. In a cluster it also decides what follows.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from footplate.checkpoints import collect_older_orphans, collect_orphans, counting
from footplate.checkpoints.origin import let_go
from footplate.checkpoints.retention import unknown_metric
from footplate.errors import (
    FencedError,
    FootplateError,
    PreemptedError,
    StoreError,
    TrainingError,
    WorkerLostError,
)
from footplate.spec import Job
from footplate.store import (
    AttemptResult,
    DataVersion,
    End,
    Failure,
    Progress,
    RunRecord,
    Store,
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
from footplate.train.command import run_command
from footplate.train.datasets import settle_data
from footplate.train.failure import cause_of, failure_of, reported_cause
from footplate.train.folder import working_folder
from footplate.train.growth import Growth, growing
from footplate.train.next_attempt import (
    after_attempt,
    after_stop,
    already_ended,
    await_store,
    pause,
    settle_damage,
)
from footplate.train.notice import NoticeWatch
from footplate.train.rank_config import RankConfig
from footplate.train.reliability import read_reliability
from footplate.train.trainer import fit, rank_resources, ray_cluster
from footplate.train.workers import (
    Absence,
    await_workers,
    living_nodes,
    muster_of,
    pods_there,
)

__all__ = ["drive"]

log = logging.getLogger(__name__)

# How long the end of a run may wait for MLflow, and that of an attempt which another one follows:
# that one sends what is missing.
_TRACKING_DEADLINE_S = 30.0
_TRACKING_DEADLINE_BETWEEN_S = 5.0


def drive(
    record: RunRecord, folder: Path, *, local: bool, on_claim: Callable[[Attempt], None]
) -> AttemptResult:
    """
    Make one attempt.

    Args:
        record: Of the run.
        folder: What relative paths of its spec refer to, if the code does not travel.
        local: Whether to start Ray on this machine and own it.
        on_claim: Is told of the attempt.

    Returns:
        How it ended; the same is in the store, if the store could take it. If it says that the
        run goes on, the next attempt is to be made by another process, now.

    Raises:
        FootplateError: If the attempt could not even be claimed.
    """
    started = time.time()
    job = Job.from_dict(record.spec, folder=folder, source=record.name)
    store = open_store(job)
    if not local:
        await_store(store, record.paths, has_worked=False)
        if (ended := already_ended(store, record.paths, job)) is not None:
            return ended
    attempt = claim_attempt(record, job, store)
    on_claim(attempt)
    if local and store.folder is not None:
        # The lock of that folder says that nobody else works on the run.
        _collect(attempt)
    publisher = _publisher(attempt)
    end, failure = _train(attempt, local=local)
    _let_go(attempt)
    result, pause_s = _result(attempt, end, failure, started), 0.0
    if not local and failure is not None:
        result, pause_s = after_attempt(attempt, result)
    elif not local and result.status == "interrupted":
        result = after_stop(attempt, result)
    elif failure is not None:
        result = _without_damaged(attempt, result)
    result = _close(publisher, result)
    _write_down(store, attempt.paths.result, result)
    if result.goes_on:
        pause(attempt, result, pause_s)
    elif not local and result.status == "succeeded":
        _tidy_up(attempt)
    return result


def _collect(attempt: Attempt) -> None:
    """Remove what attempts before have left half-written; training needs none of it gone."""
    try:
        collect_orphans(attempt.store, attempt.run)
    except StoreError as error:
        attempt.note(f"what earlier attempts have left can't be removed: {error.message}")


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


def _close(publisher: Publisher | None, result: AttemptResult) -> AttemptResult:
    """The result with what has come of tracking."""
    if publisher is None:
        return result
    if result.goes_on:
        published = publisher.close("RUNNING", _TRACKING_DEADLINE_BETWEEN_S)
    else:
        published = publisher.close(status_of(result), _TRACKING_DEADLINE_S)
    return result.model_copy(update={"tracking": asdict(published)})


def _result(
    attempt: Attempt, end: End | None, failure: Failure | None, started: float
) -> AttemptResult:
    status: Literal["succeeded", "failed", "interrupted"] = "failed"
    if failure is None and end is not None:
        status = "interrupted" if end.stopped else "succeeded"
    so_far = end or _progress(attempt)
    keep = attempt.job.checkpoint.keep
    if end is not None and (unknown := unknown_metric(keep, end.metrics)) is not None:
        attempt.note(unknown)
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
    """Run the ranks or the command; their last word, and what went wrong."""
    try:
        attempt.stage("preparing")
        attempt = attempt.at(working_folder(attempt.record, attempt.store, attempt.job.folder))
        address = "local" if local else "auto"
        data = settle_data(attempt.job, attempt.store, attempt.run, ray_address=address)
        attempt.stage("starting")
        with tempfile.TemporaryDirectory(prefix="footplate-") as scratch:
            return _run(attempt, data, Path(scratch), local=local)
    except FootplateError as error:
        # Of machines that were taken away Ray says that, whatever the ranks had to say.
        known = isinstance(error, PreemptedError) and reported_cause(attempt.store, attempt.paths)
        return None, known or failure_of(error, rank=None, step=None, folder=attempt.code)
    except Exception as error:  # no code of the user's runs here, so it is Ray's fault, or ours
        log.exception("the driver failed")
        return None, failure_of(_ours(error), rank=None, step=None, folder=attempt.code)


def _run(
    attempt: Attempt, data: dict[str, DataVersion], scratch: Path, *, local: bool
) -> tuple[End | None, Failure | None]:
    job = attempt.job
    with ray_cluster(job, local=local) as address:
        pods = job.workers.count if local else _await_workers(attempt)
        if job.command is not None:
            end = run_command(
                attempt,
                scratch,
                rank_resources(job, local=local),
                ray_address=address if local else None,
                living=None if local else living_nodes,
            )
            return end, None
        failed = _run_ranks(attempt, data, scratch, pods, local=local)
    if failed:
        return None, cause_of(attempt.store, attempt.paths, failed, attempt.code)
    return _last_word(attempt), None


def _await_workers(attempt: Attempt) -> int:
    """Wait for the worker pods; how many there are to be used."""
    workers = attempt.job.workers
    per_rank, absence = rank_resources(attempt.job, local=False), Absence(attempt)
    pods = await_workers(workers, per_rank, muster_of(attempt), look=absence.look)
    attempt.stage("starting")
    if workers.is_elastic:
        attempt.trains_with(pods)
    return pods


def _growing(attempt: Attempt, pods: int) -> AbstractContextManager[None]:
    """Watches for more workers as long as training goes on with fewer than it might."""
    workers = attempt.job.workers
    if pods == workers.count:
        return nullcontext()
    growth = Growth(attempt.job.usable_workers, pods, every_s=workers.grow_every.every)
    per_rank = rank_resources(attempt.job, local=False)
    return growing(attempt, growth, lambda: pods_there(workers, per_rank))


def _run_ranks(
    attempt: Attempt, data: dict[str, DataVersion], scratch: Path, pods: int, *, local: bool
) -> dict[int, BaseException]:
    config = RankConfig(
        record=attempt.record.model_dump_json(),
        attempt=attempt.claim.attempt,
        resume=attempt.claim.starts_from,
        data={name: version.model_dump_json() for name, version in data.items()},
        folder=str(attempt.job.folder),
        reliability=_reliability(attempt, pods),
        origin=attempt.origin.model_dump_json() if attempt.origin else None,
    )
    own = attempt.store.folder
    ray_folder = own / attempt.paths.ray if own else scratch
    with _growing(attempt, pods), _watching(attempt, local=local):
        return fit(attempt.job, config, ray_folder, pods=pods, local=local)


def _watching(attempt: Attempt, *, local: bool) -> AbstractContextManager[object]:
    """Looks out for machines that go away; this one does not."""
    return nullcontext() if local else NoticeWatch(attempt.store, attempt.paths)


def _reliability(attempt: Attempt, pods: int) -> dict[str, Any]:
    """What is known of the attempts before; that it is not known is no reason to wait."""
    try:
        known = read_reliability(attempt.store, attempt.run, attempt.claim, pods=pods)
    except StoreError as error:
        log.warning("the attempts before this one are not known: %s", error)
        return {}
    return known.to_dict()


def _without_damaged(attempt: Attempt, result: AttemptResult) -> AttemptResult:
    """On this machine a run goes on by itself if all that is wrong is what it started from."""
    try:
        return settle_damage(attempt, result)
    except StoreError as error:
        log.warning("what is damaged can't be set aside: %s", error)
        return result


def _ours(error: Exception) -> TrainingError:
    """An error that is neither ours nor of the user's code."""
    what = f"{type(error).__name__}: {error}"
    if type(error).__module__.startswith("ray.") or isinstance(error, ConnectionError):
        return WorkerLostError(f"Ray failed: {what}", "Usual cause: a node or its Ray went away.")
    return TrainingError(f"the driver failed: {what}")


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


def _let_go(attempt: Attempt) -> None:
    """Hold on to the checkpoint of another run no longer than until there is one of this run."""
    if attempt.origin is not None and _newest_checkpoint(attempt) is not None:
        try:
            let_go(attempt.origin, attempt.run)
        except FootplateError as error:
            log.warning("what the run started from stays pinned: %s", error)


def _tidy_up(attempt: Attempt) -> None:
    """Leave nothing of earlier attempts behind that nobody will ever read."""
    try:
        collect_older_orphans(attempt.store, attempt.run, attempt=attempt.claim.attempt)
    except (StoreError, FencedError) as error:
        log.warning("what earlier attempts left can't be removed: %s", error)


def _write_down(store: Store, path: str, result: AttemptResult) -> None:
    try:
        store.put(path, to_json(result))
        store.sync(path)
    except StoreError as error:
        # Whoever started this process still learns how it ended from its exit code and output.
        log.error("the result can't be written: %s", error)
