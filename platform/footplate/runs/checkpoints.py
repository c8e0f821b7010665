"""The checkpoints of a run as its user sees them: what is there, which is meant, what may go."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.checkpoints import (
    CheckpointManifest,
    Facts,
    Remover,
    counted,
    is_committed,
    kept_for,
    pin,
    read_manifest,
    read_pins,
    unpin,
)
from footplate.checkpoints.integrity import mark_damaged, read_checked, verify
from footplate.checkpoints.space import CheckpointSizes, checkpoint_sizes
from footplate.errors import (
    CheckpointError,
    CheckpointGoneError,
    MissingExtraError,
    RunNotFoundError,
)
from footplate.runs.history import PastRun, find_run_at
from footplate.runs.holding import check_unclaimed, held
from footplate.runs.marks import signature
from footplate.runs.space import keep_of
from footplate.runs.standing import Standing, standing_of
from footplate.store import CheckpointName, Store, ask_many, counted_until

if TYPE_CHECKING:
    from footplate.checkpoints.restore import CheckpointReader

__all__ = ["CheckpointState", "Checkpoints", "StoredCheckpoint"]

Progress = Callable[[int, int], None]
"""Hears how many bytes of how many are done; called from several threads."""


class CheckpointState(StrEnum):
    """What a checkpoint folder is."""

    COUNTS = "counts"
    NOT_COUNTED = "not counted"
    """Of an attempt whose successor went on from an earlier one."""
    DAMAGED = "damaged"
    INCOMPLETE = "incomplete"
    """Without a commit marker: being written, or left over from a kill."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredCheckpoint:
    """
    A checkpoint folder.

    Attributes:
        bytes: All that is stored of it.
        state: Whether a run would go on from it.
        kept_for: Rules of ``checkpoint.keep`` by which it stays: ``last``, ``best``, ``every``.
        is_start: The newest attempt has started from it: it stays as long as that is so.
        pins: Names of the pins that hold it.
        manifest: What it says of itself; None if it does not, or not so that it can be read.
    """

    name: CheckpointName
    bytes: int
    state: CheckpointState
    kept_for: tuple[str, ...]
    is_start: bool
    pins: tuple[str, ...]
    manifest: CheckpointManifest | None

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values, without the list of files."""
        return {
            "name": str(self.name),
            "step": self.name.step,
            "attempt": self.name.attempt,
            "bytes": self.bytes,
            "state": self.state.value,
            "kept_for": list(self.kept_for),
            "is_start": self.is_start,
            "pins": list(self.pins),
            "manifest": _plain(self.manifest) if self.manifest else None,
        }


class Checkpoints:
    """
    The checkpoints of a run, looked at once.

    Args:
        past: The run.
    """

    def __init__(self, store: Store, past: PastRun) -> None:
        self._store = store
        self._past = past
        self.run = past.paths

    @cached_property
    def all(self) -> list[StoredCheckpoint]:
        """
        Every checkpoint folder, by step.

        Raises:
            StoreError: If the store does not tell.
        """
        sizes = checkpoint_sizes(self._store, self.run)
        states = self._states(sizes)
        pins = self._pins()
        start = self._past.claims[-1].start if self._past.claims else None
        names = sorted(states)
        manifests = dict(zip(names, ask_many(self._store, self._manifest, names), strict=True))
        counts = [name for name in names if states[name] is CheckpointState.COUNTS]
        rules = kept_for(counts, keep_of(self._past), facts=lambda name: _facts(manifests[name]))
        return [
            StoredCheckpoint(
                name=name,
                bytes=sizes.bytes[name],
                state=states[name],
                kept_for=rules.get(name, ()),
                is_start=name == start,
                pins=tuple(pins.get(name, ())),
                manifest=manifests[name],
            )
            for name in names
        ]

    @property
    def counting(self) -> list[StoredCheckpoint]:
        """Those that count, by step."""
        return [each for each in self.all if each.state is CheckpointState.COUNTS]

    def find(self, wanted: str | None = None) -> StoredCheckpoint:
        """
        The checkpoint that is meant.

        Args:
            wanted: A step, or the name of a folder; left out: the newest that counts.

        Raises:
            CheckpointGoneError: If there is none.
        """
        if wanted is None:
            if self.counting:
                return self.counting[-1]
            raise CheckpointGoneError(f"{self.run.name} has no checkpoint")
        found = [each for each in self.all if wanted in (str(each.name), str(each.name.step))]
        if not found:
            there = ", ".join(str(each.name.step) for each in self.counting) or "none"
            raise CheckpointGoneError(
                f"{self.run.name} has no checkpoint {wanted}", f"There are steps {there}."
            )
        # Of two attempts at one step, the one that counts.
        return max(found, key=lambda each: (each.state is CheckpointState.COUNTS, each.name))

    def verify(
        self, checkpoint: StoredCheckpoint, *, mark: bool = False, progress: Progress | None = None
    ) -> list[str]:
        """
        Read every byte of a checkpoint.

        Args:
            mark: Let it count no more if something is wrong.
            progress: See :data:`Progress`.

        Returns:
            All that is damaged or missing.

        Raises:
            CheckpointGoneError: If it has been removed meanwhile.
            CheckpointError: If it is of another format, or malformed.
            StoreError: If the store fails.
        """
        wrong = verify(self._store, self.run, checkpoint.name, progress=progress)
        if not wrong or checkpoint.state is CheckpointState.INCOMPLETE:
            return wrong
        if not is_committed(self._store, self.run, checkpoint.name):
            raise CheckpointGoneError(f"{checkpoint.name} of {self.run.name} is not there any more")
        if mark:
            mark_damaged(self._store, self.run, checkpoint.name, "\n".join(wrong))
        return wrong

    def export(
        self,
        checkpoint: StoredCheckpoint,
        out: Path,
        *,
        tracked: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        """
        Write the tensors of one tracked object to a safetensors file.

        Args:
            out: The file.
            tracked: The object; left out: the model.
            progress: See :data:`Progress`.

        Returns:
            The name of the object.

        Raises:
            MissingExtraError: If PyTorch is not installed.
            CheckpointError: If it can't be read, is damaged, or holds no such object.
        """
        missing = tuple(module for module in ("torch", "numpy") if find_spec(module) is None)
        if missing:
            raise MissingExtraError("train", missing)
        from footplate.checkpoints.export import export_safetensors
        from footplate.checkpoints.restore import CheckpointReader

        if checkpoint.state is CheckpointState.INCOMPLETE:
            raise CheckpointError(f"{checkpoint.name} of {self.run.name} is {checkpoint.state}")
        folder = self.run.checkpoint(checkpoint.name)
        manifest = read_checked(self._store, folder, checkpoint.name)
        reader = CheckpointReader(self._store, folder, manifest)
        tracked = tracked or _model(reader)
        export_safetensors(reader, tracked, out, progress=progress)
        return tracked

    def pin(self, checkpoint: StoredCheckpoint, pin_name: str | None = None) -> str:
        """
        Let a checkpoint stay, whatever the policy says.

        Args:
            pin_name: Left out: ``step-`` and the step.

        Returns:
            The name of the pin.

        Raises:
            CheckpointError: If the pin holds another one, or the checkpoint is not complete.
        """
        pin_name = pin_name or f"step-{checkpoint.name.step}"
        now = time.time()
        by = signature(now)
        pin(self._store, self.run, pin_name, checkpoint.name, by=by, time=now)
        return pin_name

    def unpin(self, wanted: str | None, pin_name: str | None = None) -> list[str]:
        """
        Take pins away.

        Args:
            wanted: The checkpoint, as for :meth:`find`.
            pin_name: This pin alone, whatever it holds.

        Returns:
            Their names.

        Raises:
            CheckpointError: If there is none.
        """
        there = read_pins(self._store, self.run)
        taken = [pin_name] if pin_name is not None else list(self.find(wanted).pins)
        if not taken or not set(taken) <= set(there):
            known = ", ".join(f"{name} on {held.checkpoint}" for name, held in there.items())
            raise CheckpointError(
                f"{self.run.name} has no such pin", f"There are {known or 'none'}."
            )
        for name in taken:
            unpin(self._store, self.run, name)
        return taken

    def check_deletable(self, checkpoint: StoredCheckpoint) -> None:
        """
        Make sure that nobody needs a checkpoint.

        Raises:
            CheckpointError: If it is pinned, or a run that may go on may need it.
        """
        what = f"{checkpoint.name} of {self.run.name}"
        if checkpoint.pins:
            raise CheckpointError(
                f"{what} is pinned: {', '.join(checkpoint.pins)}",
                f"footplate checkpoints unpin {self.run.name} {checkpoint.name.step} lets it go.",
            )
        if not self.standing.may_go_on:
            return
        why = f"the run may need it: it is {self.standing.state}, {self.standing.why}"
        newest = self._past.claims[-1].attempt if self._past.claims else 0
        is_begun = checkpoint.state is CheckpointState.INCOMPLETE
        if is_begun and checkpoint.name.attempt == newest and not self.standing.is_over:
            raise CheckpointError(f"{what} may be being written: {why}")
        if checkpoint.is_start or checkpoint in self.counting[-1:]:
            raise CheckpointError(
                f"{what} is what it would go on from, and {why}",
                "Cancel the run first. One that is gone is waited for, for 30 days at most.",
            )

    def delete(self, chosen: Sequence[StoredCheckpoint]) -> Iterator[StoredCheckpoint]:
        """
        Remove checkpoints for good, as the run is by now; nothing if one of them may not go.

        Yields:
            Each once it is removed.

        Raises:
            CheckpointError: See :meth:`check_deletable`; or if one has been pinned meanwhile.
            FencedError: If the run begins to work meanwhile.
            RunBusyError: Likewise, on this machine.
            RunNotFoundError: If the run has been removed.
            StoreError: If the store fails.
        """
        past = find_run_at(self._store, self.run)
        if past is None:
            raise RunNotFoundError(f"{self.run.root} is not there any more")
        now = Checkpoints(self._store, past)
        found = [now.find(str(each.name)) for each in chosen]
        for each in found:
            now.check_deletable(each)
        # Of one at work those go that it does not need; it holds its lock itself.
        with held(self._store, self.run) if now.standing.is_over else nullcontext():
            for each in found:
                now._remove(each)
                yield each

    @cached_property
    def standing(self) -> Standing:
        """Whether the run is over."""
        return standing_of(self._store, self._past, now=time.time())

    def _remove(self, checkpoint: StoredCheckpoint) -> None:
        check_unclaimed(self._store, self._past)
        if not self._remover.remove(checkpoint.name):
            raise CheckpointError(f"{checkpoint.name} of {self.run.name} has just been pinned")

    @cached_property
    def _remover(self) -> Remover:
        return Remover(self._store, self.run)

    def _states(self, sizes: CheckpointSizes) -> dict[CheckpointName, CheckpointState]:
        listed = sizes.listed()
        counts = counted(listed.committed, counted_until(self._past.claims))
        states = dict.fromkeys(listed.committed, CheckpointState.NOT_COUNTED)
        states |= dict.fromkeys(counts, CheckpointState.COUNTS)
        states |= dict.fromkeys(listed.damaged, CheckpointState.DAMAGED)
        return states | dict.fromkeys(listed.uncommitted, CheckpointState.INCOMPLETE)

    def _pins(self) -> dict[CheckpointName, list[str]]:
        found: dict[CheckpointName, list[str]] = {}
        for pin_name, found_pin in read_pins(self._store, self.run).items():
            if (name := CheckpointName.parse(found_pin.checkpoint)) is not None:
                found.setdefault(name, []).append(pin_name)
        return found

    def _manifest(self, name: CheckpointName) -> CheckpointManifest | None:
        try:
            return read_manifest(self._store, self.run, name)
        except CheckpointError:
            return None


def _plain(manifest: CheckpointManifest) -> dict[str, Any]:
    """What JSON has no number for stands as text: ``nan``, ``inf``."""
    metrics = {
        name: value if math.isfinite(value) else str(value)
        for name, value in manifest.metrics.items()
    }
    return manifest.model_dump(mode="json", exclude={"files"}) | {"metrics": metrics}


def _facts(manifest: CheckpointManifest | None) -> Facts | None:
    return Facts(epoch=manifest.epoch, metrics=manifest.metrics) if manifest else None


def _model(reader: CheckpointReader) -> str:
    """What of a checkpoint is exported if nobody says: optimizers have their tensors in state."""
    models = []
    for name in reader.shared:
        paths = reader.shapes(name)
        if paths and not any(path.startswith("state.") for path in paths):
            models.append(name)
    if "model" in models:
        return "model"
    if len(models) == 1:
        return models[0]
    raise CheckpointError(
        f"the checkpoint holds {', '.join(reader.shared)}", "Say which: --object NAME."
    )
