"""Checkpoint manifests: what a checkpoint consists of, and the marker that makes it count."""

from __future__ import annotations

import builtins

from pydantic import BaseModel, ConfigDict, ValidationError

from footplate.checkpoints.index import FORMAT
from footplate.errors import CheckpointError, ObjectNotFoundError
from footplate.store import CheckpointName, RunPaths, Store, to_json

__all__ = [
    "COMMITTED",
    "DAMAGED",
    "MANIFEST",
    "CheckpointFile",
    "CheckpointManifest",
    "parse_manifest",
    "read_manifest",
]

MANIFEST = "checkpoint.json"
COMMITTED = "COMMITTED"
DAMAGED = "DAMAGED"


class CheckpointFile(BaseModel):
    """A file of a checkpoint: size in bytes and XXH3-64 of its content, hexadecimal."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    size: int
    xxh3: str


class CheckpointManifest(BaseModel):
    """
    What a checkpoint holds.

    Attributes:
        step: Optimizer steps done.
        position: Samples done with, over all epochs; where training goes on.
        epoch: Of the last step.
        world_size: Ranks that wrote it.
        written: Seconds since the epoch.
        metrics: Newest averages, for whoever chooses among checkpoints.
        tracked: Names of what all ranks share, as the training code calls it.
        reason: Why it was made.
        stall_s: For how long training stood still for it, on the slowest rank.
        skipped_rows: Rows that others have stood in for so far, by row group, by data set.
        files: All data files.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int = FORMAT
    step: int
    position: int
    epoch: int
    attempt: int
    world_size: int
    written: float
    metrics: dict[str, float] = {}
    tracked: tuple[str, ...] = ()
    reason: str = "interval"
    stall_s: float = 0.0
    skipped_rows: dict[str, dict[str, int]] = {}
    files: tuple[CheckpointFile, ...] = ()

    @property
    def name(self) -> CheckpointName:
        """The checkpoint's identity, which is also its folder's name."""
        return CheckpointName(self.step, self.attempt)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.size for file in self.files)

    def with_files(self, files: tuple[CheckpointFile, ...]) -> CheckpointManifest:
        """The same with its files, once they are written."""
        return self.model_copy(update={"files": files})

    def to_json(self) -> builtins.bytes:
        """The stored form."""
        return to_json(self)


def read_manifest(store: Store, run: RunPaths, name: CheckpointName) -> CheckpointManifest | None:
    """
    The manifest of a checkpoint folder, or None if it has none.

    Raises:
        CheckpointError: If it is malformed.
    """
    try:
        return parse_manifest(store.get(f"{run.checkpoint(name)}/{MANIFEST}"))
    except ObjectNotFoundError:
        return None


def parse_manifest(content: bytes) -> CheckpointManifest:
    """
    The manifest in its stored form.

    Raises:
        CheckpointError: If it is malformed.
    """
    try:
        return CheckpointManifest.model_validate_json(content)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise CheckpointError(f"its manifest is malformed: {reason}") from error
