"""
Where everything of a run stands in the store; pure names, no access.

::

    <namespace>/<name>/<uid>/
      run.json  data.json            what was asked for, and the exact data; written once
      init.json                      the checkpoint of another run that it starts from
      cancelled.json                 the user does not want it any more
      logs/attempt-0001.log          what the driver and its ranks printed, on this machine
           attempt-0001/000001.log   the same in a cluster, in segments
      mlflow/0001.json               which MLflow run this is; create-if-absent
      attempts/0001/claim.json       create-if-absent: who, when, from which checkpoint
                    progress.json    the newest step, at most once a second
                    result.json      how the attempt ended
                    failures/        what each failed rank saw
                    metrics/         every step's metrics, in segments
                    notes.json       what the user should know, in sentences
                    stop.json        asks the attempt to save and end
                    notice.json      says until when the machines can be used
                    interval.json    how often it saves, and why
                    request.json     what the driver asks of those who may change the cluster
                    end.json         rank 0's last word: without it nothing has succeeded
                    ray/             Ray's own folder, never trusted
      checkpoints/step-00001000.a0001/    data, checkpoint.json, COMMITTED last
                  pins/<name>.json    a checkpoint that stays, whatever the policy says
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["CODE_ARCHIVES", "AttemptPaths", "CheckpointName", "RunPaths", "code_archive_path"]


@dataclass(frozen=True, order=True, slots=True)
class CheckpointName:
    """
    The identity of a checkpoint: nobody else ever writes into its folder.

    Ordered by step first, numerically.
    """

    step: int
    attempt: int

    def __str__(self) -> str:
        return f"step-{self.step:08d}.a{self.attempt:04d}"

    @classmethod
    def parse(cls, text: str) -> CheckpointName | None:
        """The name that a folder stands for, or None for a stray folder."""
        match = re.fullmatch(r"step-(\d{8,})\.a(\d{4,})", text)
        name = cls(*(int(group) for group in match.groups())) if match else None
        return name if str(name) == text else None


@dataclass(frozen=True, slots=True)
class AttemptPaths:
    """Paths of one attempt, relative to the store."""

    root: str

    @property
    def claim(self) -> str:
        """Create-if-absent; its existence makes the attempt."""
        return f"{self.root}/claim.json"

    @property
    def progress(self) -> str:
        """The newest step, overwritten at most once a second."""
        return f"{self.root}/progress.json"

    @property
    def result(self) -> str:
        """How the attempt ended; absent if it was killed."""
        return f"{self.root}/result.json"

    @property
    def failures(self) -> str:
        """Folder with one report for each failed rank."""
        return f"{self.root}/failures"

    def failure(self, rank: int) -> str:
        """The report of one failed rank."""
        return f"{self.failures}/rank-{rank:05d}.json"

    @property
    def metrics(self) -> str:
        """Folder of metric segments."""
        return f"{self.root}/metrics"

    def metric_segment(self, number: int) -> str:
        """A segment of the metric log, numbered from 1."""
        return f"{self.metrics}/{number:06d}.jsonl"

    @property
    def notes(self) -> str:
        """What the driver wants the user to know."""
        return f"{self.root}/notes.json"

    @property
    def stop(self) -> str:
        """Its existence asks the attempt to save and end."""
        return f"{self.root}/stop.json"

    @property
    def notice(self) -> str:
        """Its existence says that machines are being taken away, and when."""
        return f"{self.root}/notice.json"

    @property
    def interval(self) -> str:
        """How often the attempt saves, and what that rests on."""
        return f"{self.root}/interval.json"

    @property
    def request(self) -> str:
        """What the driver asks of those who may change the cluster."""
        return f"{self.root}/request.json"

    @property
    def end(self) -> str:
        """What rank 0 writes when the training function has returned."""
        return f"{self.root}/end.json"

    @property
    def ray(self) -> str:
        """Ray's own run folder."""
        return f"{self.root}/ray"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPaths:
    """Paths of one run, relative to the store."""

    namespace: str
    name: str
    uid: str

    @property
    def root(self) -> str:
        """The run's folder."""
        return f"{self.namespace}/{self.name}/{self.uid}"

    @property
    def record(self) -> str:
        """What was asked for."""
        return f"{self.root}/run.json"

    @property
    def data(self) -> str:
        """The exact data it reads."""
        return f"{self.root}/data.json"

    @property
    def init(self) -> str:
        """The checkpoint of another run that it starts from; create-if-absent."""
        return f"{self.root}/init.json"

    def mlflow(self, number: int) -> str:
        """Which MLflow run this is; the next number is used when that run was deleted."""
        return f"{self.root}/mlflow/{number:04d}.json"

    @property
    def cancelled(self) -> str:
        """Its existence says that the user does not want the run any more."""
        return f"{self.root}/cancelled.json"

    def log(self, attempt: int) -> str:
        """What an attempt printed, if it ran on one machine alone."""
        return f"{self.root}/logs/attempt-{attempt:04d}.log"

    def log_segments(self, attempt: int) -> str:
        """Folder with what an attempt in a cluster printed."""
        return f"{self.root}/logs/attempt-{attempt:04d}"

    def log_segment(self, attempt: int, number: int) -> str:
        """A part of what an attempt in a cluster printed, numbered from 1."""
        return f"{self.log_segments(attempt)}/{number:06d}.log"

    @property
    def attempts(self) -> str:
        """Folder of the attempts."""
        return f"{self.root}/attempts"

    def attempt(self, number: int) -> AttemptPaths:
        """The paths of an attempt, numbered from 1."""
        return AttemptPaths(f"{self.attempts}/{number:04d}")

    @property
    def checkpoints(self) -> str:
        """Folder of the checkpoints."""
        return f"{self.root}/checkpoints"

    def checkpoint(self, name: CheckpointName) -> str:
        """The folder of a checkpoint."""
        return f"{self.checkpoints}/{name}"

    @property
    def pins(self) -> str:
        """Folder of the pins."""
        return f"{self.checkpoints}/pins"

    def pin(self, name: str) -> str:
        """What says that a checkpoint stays; create-if-absent."""
        return f"{self.pins}/{name}.json"


CODE_ARCHIVES = "code"
"""Folder of the archives of code, beside the namespaces."""


def code_archive_path(digest: str) -> str:
    """
    Where the code of runs stands: named by its content, beside the namespaces.

    Args:
        digest: ``sha256:`` and the hash of the archive.
    """
    return f"{CODE_ARCHIVES}/{digest.removeprefix('sha256:')}.zip"
