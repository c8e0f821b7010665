"""One life of the driver: claiming it, and what it says while the ranks are silent."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from footplate.checkpoints import CheckpointManifest, find_resume_point, is_committed
from footplate.checkpoints.origin import Origin, settle_origin
from footplate.errors import FencedError, ObjectExistsError, StoreError
from footplate.spec import Job
from footplate.store import (
    AttemptPaths,
    Claim,
    Notes,
    Progress,
    RunPaths,
    RunRecord,
    Store,
    claim_next,
    read_claims,
    to_json,
)
from footplate.tracking import code_identity

__all__ = ["Attempt", "claim_attempt"]

log = logging.getLogger(__name__)

# How many drivers may be faster in claiming an attempt before something else must be wrong.
_CLAIM_TRIES = 10


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """
    What a driver works on.

    Attributes:
        resume: The checkpoint it goes on from, or None for the beginning.
        origin: What the run started from, if that was the checkpoint of another one.
    """

    record: RunRecord
    job: Job
    store: Store
    run: RunPaths
    claim: Claim
    resume: CheckpointManifest | None
    origin: Origin | None = None
    _notes: list[str] = field(default_factory=list)

    @property
    def paths(self) -> AttemptPaths:
        """Where it stands in the store."""
        return self.run.attempt(self.claim.attempt)

    @property
    def code(self) -> Path:
        """The user's code."""
        return Path(self.job.path(self.job.code))

    def at(self, folder: Path) -> Attempt:
        """The same attempt with the relative paths of its job referring to ``folder``."""
        return replace(self, job=self.job.at(folder))

    def stage(self, stage: Literal["preparing", "starting", "training"], detail: str = "") -> None:
        """Show what is being done while no rank reports it."""
        step = self._first_step
        progress = Progress(
            stage=stage,
            detail=detail,
            time=time.time(),
            step=step,
            started_at_step=step,
            checkpoint=self.claim.starts_from,
        )
        self.store.put(self.paths.progress, to_json(progress))

    @property
    def _first_step(self) -> int:
        if self.resume is not None:
            return self.resume.step
        return self.origin.step if self.origin and self.origin.what == "everything" else 0

    def trains_with(self, pods: int) -> None:
        """Say in the claim with how many worker pods, where that may change; raises nothing."""
        self.note(f"trains with {pods} of {self.job.workers.count} workers")
        with suppress(StoreError):
            claim = self.claim.model_copy(update={"workers": pods})
            self.store.put(self.paths.claim, to_json(claim))

    def abandon(self) -> None:
        """
        Give it up, before it has done anything: what its claim cut off counts again.

        Raises:
            StoreError: If that can't be written.
        """
        abandoned = self.claim.model_copy(update={"abandoned": True})
        self.store.put(self.paths.claim, to_json(abandoned))

    def note(self, text: str) -> None:
        """Tell the user something, whoever watches and wherever from; raises nothing."""
        self._notes.append(text)
        log.info(text)
        with suppress(StoreError):
            self.store.put(self.paths.notes, to_json(Notes(lines=tuple(self._notes))))


def claim_attempt(record: RunRecord, job: Job, store: Store) -> Attempt:
    """
    Claim the next attempt of a run.

    The claim says which checkpoint the attempt starts from, and by that what of the attempts
    before it still counts.

    Raises:
        FencedError: If other drivers are faster again and again.
        RunNotFoundError: If it is to start from a run that is not there.
        CheckpointError: If that has no checkpoint to start from.
    """
    run = record.paths
    _write_record_once(record, store, run)
    origin = settle_origin(job, store, run)
    for _ in range(_CLAIM_TRIES):
        claims = read_claims(store, run)
        resume, rejected = find_resume_point(store, run, claims)
        claim = Claim(
            attempt=claims[-1].attempt + 1 if claims else 1,
            token=secrets.token_hex(8),
            host=socket.gethostname(),
            pid=os.getpid(),
            claimed=time.time(),
            starts_from=str(resume.name) if resume else None,
            spec=record.spec,
            cluster=os.environ.get("RAY_CLUSTER_NAME"),
            code=_code(record, job),
        )
        try:
            claim_next(store, run, claim)
        except FencedError:
            continue
        attempt = Attempt(
            record=record,
            job=job,
            store=store,
            run=run,
            claim=claim,
            resume=resume,
            origin=origin,
        )
        if resume is not None and not is_committed(store, run, resume.name):
            # An older attempt that still lives has removed it between our look and our claim.
            # The claim has fenced that attempt; what it saved last is for the next claim.
            attempt.abandon()
            continue
        for reason in rejected:
            attempt.note(f"passed over checkpoint {reason}")
        if resume is not None:
            attempt.note(f"goes on from step {resume.step} ({resume.name})")
        elif origin is not None:
            attempt.note(f"starts from {origin}")
        elif job.command is None and any(not each.abandoned for each in claims):
            attempt.note("begins at step 0: the attempts before have saved nothing")
        return attempt
    raise FencedError(f"{_CLAIM_TRIES} other drivers claimed attempts of {run.root} meanwhile")


def _code(record: RunRecord, job: Job) -> dict[str, JsonValue]:
    """What is known of the user's code; of code that travels, all is known already."""
    if "archive" in record.code:
        return record.code
    return code_identity(Path(job.path(job.code)), job.module)


def _write_record_once(record: RunRecord, store: Store, run: RunPaths) -> None:
    # What a cluster hands out was rendered without a clock.
    created = record.created or time.time()
    try:
        store.create(run.record, to_json(record.model_copy(update={"created": created})))
    except ObjectExistsError:
        return
