"""What space the runs of a store take, and for what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from footplate.checkpoints import counted, orphans, pinned
from footplate.checkpoints.space import CheckpointSizes
from footplate.runs.history import PastRun
from footplate.runs.inventory import StoredRun
from footplate.spec import Keep
from footplate.store import (
    CODE_ARCHIVES,
    CheckpointName,
    ObjectInfo,
    RunPaths,
    Store,
    counted_until,
)

__all__ = ["Part", "RunSpace", "StoreSpace", "keep_of", "run_space", "store_space"]

Seen = Callable[[ObjectInfo], None]


class Part(StrEnum):
    """What space is taken for."""

    CHECKPOINTS = "checkpoints"
    """Those that count, and damaged ones as long as they are kept."""
    PINNED = "pinned"
    """Checkpoints that don't count and stay for a pin."""
    ORPHANS = "orphans"
    """Checkpoint folders that no attempt will ever read, or that one is writing now."""
    LOGS = "logs"
    METRICS = "metrics"
    RAY = "ray"
    """Ray's own folders, with the checkpoints of a trainer that a script brings itself."""
    RECORDS = "records"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpace:
    """
    What space a run takes.

    Attributes:
        bytes: By what it is taken for.
        counting: Names of the checkpoints that count.
        orphans: Names of the folders that are orphans.
        sizes: Of each checkpoint folder.
    """

    bytes: Mapping[Part, int]
    counting: tuple[CheckpointName, ...]
    orphans: tuple[CheckpointName, ...]
    sizes: CheckpointSizes

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.bytes.values())

    def to_dict(self) -> dict[str, Any]:
        """Bytes by what they are for, as plain JSON values."""
        return {part.value: self.bytes[part] for part in Part} | {
            "total": self.total,
            "checkpoints_counting": len(self.counting),
            "checkpoints_orphaned": len(self.orphans),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreSpace:
    """
    What space a store takes.

    Attributes:
        runs: By the folder of each run.
        code: Archives of code.
        datasets: Data sets that runs have prepared.
        other: Anything else; also runs whose records can't be read.
    """

    runs: Mapping[str, RunSpace]
    code: int
    datasets: int
    other: int

    def of(self, part: Part) -> int:
        """Bytes that all runs together take for something."""
        return sum(run.bytes[part] for run in self.runs.values())

    def to_dict(self) -> dict[str, int]:
        """Bytes by what they are for, as plain JSON values."""
        parts = {part.value: self.of(part) for part in Part}
        parts |= {"code": self.code, "datasets": self.datasets, "other": self.other}
        return parts | {"total": sum(parts.values())}


def keep_of(past: PastRun) -> Keep:
    """What a run keeps; what another version has written differently is not known here."""
    try:
        return Keep.model_validate(past.spec.get("checkpoint", {}).get("keep", {}))
    except ValidationError:
        return Keep()


def run_space(store: Store, past: PastRun, *, seen: Seen | None = None) -> RunSpace:
    """
    Add up what is stored of a run.

    Args:
        seen: Is told of each object.

    Raises:
        StoreError: If the store does not tell.
    """
    tally = _Tally(past.paths)
    for info in store.stored(past.paths.root):
        tally.add(info)
        if seen is not None:
            seen(info)
    return tally.sorted_out(store, past)


def store_space(store: Store, runs: Sequence[StoredRun], *, seen: Seen | None = None) -> StoreSpace:
    """
    Add up all that is stored.

    Args:
        runs: All runs of the store.
        seen: Is told of each object.

    Raises:
        StoreError: If the store does not tell.
    """
    pasts = {run.paths.root: run.past for run in runs if run.past is not None}
    tallies = {root: _Tally(past.paths) for root, past in pasts.items()}
    beside = {CODE_ARCHIVES: 0, "datasets": 0, "": 0}
    for info in store.stored(""):
        root = "/".join(info.path.split("/", 3)[:3])
        if root in tallies:
            tallies[root].add(info)
        else:
            folder = info.path.partition("/")[0]
            beside[folder if folder in beside else ""] += info.size
        if seen is not None:
            seen(info)
    return StoreSpace(
        runs={root: tally.sorted_out(store, pasts[root]) for root, tally in tallies.items()},
        code=beside[CODE_ARCHIVES],
        datasets=beside["datasets"],
        other=beside[""],
    )


@dataclass
class _Tally:
    """What of a run has been seen so far."""

    run: RunPaths
    amounts: dict[Part, int] = field(default_factory=lambda: dict.fromkeys(Part, 0))
    has_pins: bool = False

    def __post_init__(self) -> None:
        self.sizes = CheckpointSizes(run=self.run)

    def add(self, info: ObjectInfo) -> None:
        if self.sizes.add(info):
            return
        self.has_pins = self.has_pins or info.path.startswith(f"{self.run.pins}/")
        self.amounts[self._part(info.path)] += info.size

    def sorted_out(self, store: Store, past: PastRun) -> RunSpace:
        """With the claims, which tell what counts."""
        listed = self.sizes.listed()
        counting = counted(listed.committed, counted_until(past.claims))
        unread = orphans(listed, past.claims, keep_last=keep_of(past).last)
        pins = pinned(store, self.run) if self.has_pins else set()
        loose = tuple(name for name in unread if name not in pins)
        # Damaged ones stay for a while.
        staying = set(self.sizes.bytes) - set(unread)
        of_checkpoints = {
            Part.CHECKPOINTS: self._total(staying),
            Part.PINNED: self._total(name for name in unread if name in pins),
            Part.ORPHANS: self._total(loose),
        }
        return RunSpace(
            bytes=self.amounts | of_checkpoints,
            counting=tuple(counting),
            orphans=loose,
            sizes=self.sizes,
        )

    def _total(self, names: Iterable[CheckpointName]) -> int:
        return sum(self.sizes.bytes[name] for name in names)

    def _part(self, path: str) -> Part:
        match path.removeprefix(f"{self.run.root}/").split("/"):
            case ["logs", *_]:
                return Part.LOGS
            case ["attempts", _, "metrics", *_]:
                return Part.METRICS
            case ["attempts", _, "ray", *_]:
                return Part.RAY
            case _:
                return Part.RECORDS
