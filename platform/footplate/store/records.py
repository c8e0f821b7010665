"""The JSON records of a run, as frozen models, and how they are read and written."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from footplate.errors import ObjectNotFoundError, StoreError
from footplate.store.layout import CheckpointName, RunPaths
from footplate.store.objects import Store

__all__ = [
    "INTERRUPTED",
    "AttemptResult",
    "Claim",
    "DataVersion",
    "End",
    "Failure",
    "Notes",
    "Notice",
    "Progress",
    "Request",
    "RunData",
    "RunRecord",
    "SaveInterval",
    "StopRequest",
    "read_record",
    "read_record_if_there",
    "to_json",
]


# The exit code of a process that was stopped on purpose, as shells have it for Ctrl-C.
INTERRUPTED = 130


class _Record(BaseModel):
    # Extra keys are kept out, but tolerated: an older client reads what a newer driver wrote.
    # NaN and infinity, which a metric or a parameter can be, would be written as null.
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class RunRecord(_Record):
    """
    What was asked for: ``run.json``, and the file that the driver is started with.

    Attributes:
        uid: The Job UID.
        created: Seconds since the epoch.
        spec: The job as plain values.
        folder: What relative paths of the spec refer to: of this machine; or, if the code
            travels, inside its archive. None: the folder that the driver is started in.
        code: Digest, commit and dirtiness of the user's code, as far as known; if it travels,
            ``archive`` is the digest of the archive, ``sha256:`` and 64 hexadecimal digits.
        versions: Version of each package that matters.
    """

    uid: str
    namespace: str
    name: str
    created: float
    spec: dict[str, Any]
    folder: str | None = None
    code: dict[str, JsonValue] = {}
    versions: dict[str, str] = {}

    @property
    def paths(self) -> RunPaths:
        """Where the run stands in the store."""
        return RunPaths(namespace=self.namespace, name=self.name, uid=self.uid)


class DataVersion(_Record):
    """The exact data a run reads: the manifest's location, version and rows."""

    manifest: str
    version: str
    rows: int


class RunData(_Record):
    """
    The data of a run: ``data.json``, written once and binding for every attempt.

    Attributes:
        sets: Name of each data set to its version.
    """

    sets: dict[str, DataVersion]


class Claim(_Record):
    """
    One life of the driver: ``claim.json``.

    Attributes:
        attempt: Its number, from 1.
        token: Unique to this driver; tells two apart that believe to be the same attempt.
        starts_from: Name of the checkpoint it continues, or None for the beginning.
        cluster: The RayCluster it runs in; None outside Kubernetes.
        abandoned: Its driver gave it up before it did anything.
        workers: Worker pods that it trains with, where their number may change and is known.
        spec: The job as this attempt runs it.
    """

    attempt: int
    token: str
    host: str
    pid: int
    claimed: float
    starts_from: str | None = None
    cluster: str | None = None
    abandoned: bool = False
    workers: int | None = None
    spec: dict[str, Any]
    code: dict[str, JsonValue] = {}

    @property
    def start(self) -> CheckpointName | None:
        """The checkpoint that it continues, or None for the beginning."""
        return CheckpointName.parse(self.starts_from) if self.starts_from else None


class Progress(_Record):
    """
    Where an attempt is: ``progress.json``.

    Attributes:
        stage: What is being done. Of a newer driver it may be one that is not known here.
        detail: More about that, for people; may be empty.
        time: When this was written, seconds since the epoch.
        step: Optimizer steps done.
        total_steps: Steps of the whole run; 0 before it is known.
        epoch: Of the current step, from 0.
        metrics: The newest averages over ranks.
        samples_per_s: Over all ranks, recently.
        data_wait: Share of that time in which steps waited for their batches.
        eta_s: Estimated seconds until the last step.
        checkpoint: Name of the newest committed checkpoint.
        save_every_s: How often it saves, where it has chosen that itself.
        started_at_step: Where this attempt took up.
    """

    stage: str
    detail: str = ""
    time: float
    step: int = 0
    total_steps: int = 0
    epoch: int = 0
    metrics: dict[str, float] = {}
    samples_per_s: float | None = None
    data_wait: float | None = None
    eta_s: float | None = None
    checkpoint: str | None = None
    save_every_s: float | None = None
    started_at_step: int = 0


class End(_Record):
    """
    Rank 0's last word: ``end.json``. Without it an attempt has not succeeded.

    Attributes:
        stopped: It was asked to stop before the last step.
        step: Optimizer steps done.
        total_steps: Of the run; more if the training function returned early.
        epochs: Passes over the data done.
        checkpoint: Name of the newest committed checkpoint.
        metrics: Newest value of each metric, evaluation included.
    """

    stopped: bool
    step: int
    total_steps: int = 0
    epochs: float
    checkpoint: str | None = None
    metrics: dict[str, float] = {}


class Notes(_Record):
    """What the driver wants the user to know, in sentences: ``notes.json``."""

    lines: tuple[str, ...] = ()


class Request(_Record):
    """
    What the driver asks of those who may change the cluster: ``request.json``.

    Attributes:
        kind: ``new_cluster``: this RayCluster can't be used any more, make another one.
        reason: Why, in a sentence.
        time: Seconds since the epoch.
    """

    kind: Literal["new_cluster"]
    reason: str
    time: float


class StopRequest(_Record):
    """
    The word to an attempt to save and end: ``stop.json``. An empty one says ``stop``.

    Attributes:
        kind: ``stop``: the run is to end. ``resize``: another attempt follows at once, with other
            workers.
        reason: Why, in a sentence; may be empty.
    """

    kind: Literal["stop", "resize"] = "stop"
    reason: str = ""


class Notice(_Record):
    """
    Machines of an attempt are being taken away: ``notice.json``.

    Attributes:
        nodes: Ray's names of them, to when they are gone, in seconds since the epoch.
        head: That of the driver's own, without which there is no cluster.
        reason: Which ones, in a sentence.
        time: When that was noticed.
    """

    nodes: dict[str, float]
    head: str
    reason: str
    time: float

    def deadline(self, used: Collection[str]) -> float | None:
        """
        When the first machine is gone that somebody needs; None if all of those stay.

        Args:
            used: The nodes that are needed, besides the head.
        """
        needed = {self.head, *used}
        return min((until for node, until in self.nodes.items() if node in needed), default=None)


class SaveInterval(_Record):
    """
    How often an attempt saves, chosen by itself: ``interval.json``.

    Attributes:
        interval_s: Training time between two saves.
        stall_s: For how long a save holds up training.
        slowdown_s: How much later training is because it shares the machine with the writing.
        save_s: From the stall's beginning until the checkpoint counts.
        restart_s: From a failure to the first new step.
        mttf_s: Time between failures, in the mean.
        failures: How many were seen, by which that was estimated.
        goodput: The share of the time that is expected to go into steps which are kept.
        time: When this was chosen, seconds since the epoch.
    """

    interval_s: float
    stall_s: float
    slowdown_s: float
    save_s: float
    restart_s: float
    mttf_s: float
    failures: int
    goodput: float
    time: float


class Failure(_Record):
    """
    What went wrong in one process.

    Attributes:
        rank: Of the training process; None for the driver.
        step: Optimizer steps that rank had done.
        time: Seconds since the epoch: the earliest failure is the cause.
        error: Class name of the error.
        category: From the vocabulary of failures.
        message: What happened.
        hint: What to do next.
        trace: Traceback, may be empty.
        exit_code: What ``footplate run`` ends with.
    """

    rank: int | None = None
    step: int | None = None
    time: float
    error: str
    category: str
    message: str
    hint: str = ""
    trace: str = ""
    exit_code: int = 1


class AttemptResult(_Record):
    """
    How an attempt ended: ``result.json``.

    Attributes:
        status: ``interrupted`` was stopped on purpose and can go on; so was one that ended to
            go on with other workers, which ``goes_on`` tells.
        steps: Optimizer steps done since the beginning of the run.
        metrics: Newest value of each metric, evaluation included.
        checkpoint: Name of the newest committed checkpoint.
        goes_on: Another attempt follows by itself.
        tracking: URL or URI of the MLflow run and whether all of it arrived.
    """

    status: Literal["succeeded", "failed", "interrupted"]
    started: float
    ended: float
    steps: int = 0
    epochs: float = 0.0
    metrics: dict[str, float] = {}
    checkpoint: str | None = None
    failure: Failure | None = None
    goes_on: bool = False
    tracking: dict[str, JsonValue] = {}

    @property
    def was_resized(self) -> bool:
        """Whether it ended to go on with other workers, which is no failure."""
        return self.status == "interrupted" and self.goes_on

    @property
    def exit_code(self) -> int:
        """What a process that made the attempt ends with: 0, 130 if stopped, or the failure's."""
        if self.failure is not None:
            return self.failure.exit_code
        return INTERRUPTED if self.status == "interrupted" else 0


R = TypeVar("R", bound=BaseModel)


def to_json(record: BaseModel) -> bytes:
    """The stored form of a record; NaN and infinity are written as Python's ``json`` does."""
    text = json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False)
    # File names and messages may hold bytes that are no text, as lone surrogates.
    return text.encode(errors="replace")


def read_record(store: Store, path: str, kind: type[R]) -> R:
    """
    Read and check a record.

    Raises:
        ObjectNotFoundError: If it is not there.
        StoreError: If it is not what it should be.
    """
    content = store.get(path)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise StoreError(f"{store.locate(path)} is no {kind.__name__}: {error}") from error


def read_record_if_there(store: Store, path: str, kind: type[R]) -> R | None:
    """The record, or None if it is not there."""
    try:
        return read_record(store, path, kind)
    except ObjectNotFoundError:
        return None
