"""
Where a run stands, in one sentence: from the objects of a run to its phase and its reason.

Pure: whoever asks brings what was seen (:class:`Snapshot`) and the time. What is trusted, in this
order: the records of the driver in the store, what people have signed on the RayJob, Kueue's
conditions, KubeRay's status, the pods and their nodes, events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from footplate.runs.deployment import Deployment
from footplate.runs.ending import ended, leaving
from footplate.runs.fields import string
from footplate.runs.phase import (
    EXIT_CANCELLED,
    EXIT_DEACTIVATED,
    EXIT_DELETED,
    Finding,
    Phase,
)
from footplate.runs.snapshot import Snapshot
from footplate.runs.starting import running
from footplate.runs.text import one_line
from footplate.runs.waiting import admitted, incomplete, queued, stopped

__all__ = [
    "EXIT_CANCELLED",
    "EXIT_DEACTIVATED",
    "EXIT_DELETED",
    "Deployment",
    "Phase",
    "RunState",
    "Snapshot",
    "state_of",
]

_SENTENCE = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """
    Where a run stands.

    Attributes:
        uid: The Job UID.
        reason: One sentence: on what it waits, what it does, or why it ended.
        since: When the phase began, seconds since the epoch, if that is known.
        created: When it was submitted, seconds since the epoch.
        queue: Its LocalQueue; empty without Kueue.
        workers_ready: Worker pods that are ready; data workers are not among them.
        workers_wanted: Worker pods that there are to be.
        step: Optimizer steps done, in whichever attempt.
        total_steps: Of the whole run; 0 before it is known.
        metrics: The newest values.
        checkpoint: Name of the newest committed checkpoint.
        samples_per_s: While it trains.
        eta_s: Seconds until the last step, while it trains.
        attempt: Number of the newest attempt, from 1; None before the first.
        exit_code: Of a terminal phase; None before.
        mlflow: Where its MLflow run is, if the driver has told.
        messages: What the driver wants the user to know, in sentences.
    """

    name: str
    namespace: str
    uid: str
    phase: Phase
    reason: str
    since: float | None = None
    created: float | None = None
    queue: str = ""
    workers_ready: int = 0
    workers_wanted: int = 0
    step: int = 0
    total_steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint: str | None = None
    samples_per_s: float | None = None
    eta_s: float | None = None
    attempt: int | None = None
    exit_code: int | None = None
    mlflow: str | None = None
    messages: tuple[str, ...] = ()

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.phase.is_terminal

    @property
    def summary(self) -> str:
        """A few words for a column: ``training 120/600``, ``starting 1/2``, ``failed (10)``."""
        if self.phase is Phase.TRAINING and self.total_steps:
            return f"{self.phase} {self.step}/{self.total_steps}"
        if self.phase is Phase.STARTING:
            return f"{self.phase} {self.workers_ready}/{self.workers_wanted}"
        return f"{self.phase} ({self.exit_code})" if self.exit_code else f"{self.phase}"

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values, for scripts; the names are those of the attributes."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            **values,
            "phase": self.phase.value,
            "metrics": {name: _finite(value) for name, value in self.metrics.items()},
            "messages": list(self.messages),
        }


def _finite(value: float) -> float | str:
    """What JSON has no number for, as text: ``nan``, ``inf``."""
    return value if math.isfinite(value) else str(value)


def state_of(snapshot: Snapshot, *, now: float) -> RunState:
    """
    Where a run stands.

    Args:
        now: Seconds since the epoch.
    """
    finding = _finding(snapshot, now)
    progress, result = snapshot.progress, snapshot.result
    trains = snapshot.current_progress() if finding.phase is Phase.TRAINING else None
    newest = result or progress
    return RunState(
        name=snapshot.name,
        namespace=snapshot.namespace,
        uid=string(snapshot.rayjob, "metadata", "uid"),
        phase=finding.phase,
        reason=one_line(finding.reason, _SENTENCE),
        since=finding.since,
        created=snapshot.created,
        queue=snapshot.queue,
        workers_ready=0 if finding.phase.is_terminal else snapshot.workers_ready,
        workers_wanted=snapshot.workers_wanted,
        step=result.steps if result else progress.step if progress else 0,
        total_steps=progress.total_steps if progress else 0,
        metrics=newest.metrics if newest else {},
        checkpoint=newest.checkpoint if newest else None,
        samples_per_s=trains.samples_per_s if trains else None,
        eta_s=trains.eta_s if trains else None,
        attempt=snapshot.attempt,
        exit_code=finding.exit_code,
        mlflow=string(result.tracking, "url") or None if result else None,
        messages=snapshot.notes.lines if snapshot.notes else (),
    )


def _finding(snapshot: Snapshot, now: float) -> Finding:
    """The first that applies, from what is over to what is under way."""
    found = (
        ended(snapshot, now)
        or incomplete(snapshot, now)
        or stopped(snapshot, now)
        or queued(snapshot, now)
        or admitted(snapshot, now)
        or running(snapshot, now)
    )
    if not found.phase.is_terminal and (going := leaving(snapshot)):
        return found._replace(reason=going)
    return found
