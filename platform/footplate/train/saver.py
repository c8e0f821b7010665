"""Saving and restoring what a training function tracks."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch

from footplate.checkpoints import (
    CheckpointFile,
    CheckpointManifest,
    discard,
    is_committed,
    prune,
)
from footplate.checkpoints.publish import SHARED_FILE, commit, rank_file, write_state
from footplate.checkpoints.restore import read_state
from footplate.errors import CheckpointError, FencedError, FootplateError, StoreError, UserCodeError
from footplate.store import CheckpointName, RunPaths, Store
from footplate.train import randomness
from footplate.train.group import RankGroup
from footplate.train.parallel import unwrapped

__all__ = ["Saver", "Stateful"]

log = logging.getLogger(__name__)


@runtime_checkable
class Stateful(Protocol):
    """What can be tracked: a model, an optimizer, a scheduler, anything with these two."""

    def state_dict(self) -> Any:
        """Everything needed to go on, of types that can be stored without pickle."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Take over what ``state_dict`` gave."""


class Saver:
    """
    The checkpoints of one rank's process.

    Args:
        resume: The checkpoint that this attempt goes on from, or None.
        keep_last: How many checkpoints stay.
        before_commit: Called on rank 0 once all data is written.
    """

    def __init__(
        self,
        store: Store,
        run: RunPaths,
        group: RankGroup,
        *,
        attempt: int,
        resume: CheckpointManifest | None,
        keep_last: int,
        before_commit: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._run = run
        self._group = group
        self._attempt = attempt
        self._resume = resume
        self._keep_last = keep_last
        self._before_commit = before_commit
        self._clock = clock
        self._tracked: dict[str, Any] = {}
        self._generators: dict[str, torch.Generator] = {}
        # What is read and not yet taken up: of all ranks, and of this one alone. A rank that the
        # writing run did not have finds nothing of its own.
        self._saved: dict[str, Any] = {}
        self._own: dict[str, Any] | None = None
        if resume is not None:
            self._saved = read_state(store, run, resume, SHARED_FILE) or {}
            self._own = read_state(store, run, resume, rank_file(group.rank))
        self._saved_at = clock()

    @property
    def seconds_since_saved(self) -> float:
        """Since the last checkpoint of this attempt, or its beginning."""
        return self._clock() - self._saved_at

    def track(self, name: str, tracked: object) -> None:
        """
        Save this object with every checkpoint; restore it now if there is one.

        Raises:
            CheckpointError: If it can't be tracked, or the checkpoint does not fit it.
        """
        if isinstance(tracked, type) or not isinstance(tracked, (Stateful, torch.Generator)):
            raise UserCodeError(
                f"{name} is a {type(tracked).__name__}, without state_dict and load_state_dict",
                "Track models, optimizers, schedulers, torch generators, or objects with both.",
            )
        if name in self._tracked or name in self._generators:
            raise UserCodeError(f"{name} is tracked already", "Give each object its own name.")
        if isinstance(tracked, torch.Generator):
            self._generators[name] = tracked
            if self._own is not None:
                tracked.set_state(self._taken(self._own["generators"], name))
            return
        self._tracked[name] = tracked
        if self._resume is not None:
            self._restore(name, tracked, self._taken(self._saved, name))

    @property
    def tracks_anything(self) -> bool:
        """Whether a checkpoint would hold more than random numbers."""
        return bool(self._tracked or self._generators)

    @property
    def tracks_plain_model(self) -> bool:
        """Whether a model that is trained is tracked as it is, without anything around it."""
        models = [item for item in self._tracked.values() if isinstance(item, torch.nn.Module)]
        trained = [m for m in models if any(p.requires_grad for p in m.parameters())]
        return any(unwrapped(model) is model for model in trained)

    def holds(self, model: torch.nn.Module) -> bool:
        """Whether a model is saved: by itself, in another one, or perhaps in an object unknown."""
        tracked = [unwrapped(item) for item in self._tracked.values()]
        known = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
        if not all(isinstance(item, known) for item in tracked):
            return True
        parts = [
            part for item in tracked if isinstance(item, torch.nn.Module) for part in item.modules()
        ]
        return any(unwrapped(model) is part for part in parts)

    def _taken(self, saved: dict[str, Any], name: str) -> Any:
        assert self._resume is not None
        if name not in saved:
            raise CheckpointError(
                f"checkpoint {self._resume.name} holds {sorted(saved)}, not {name!r}",
                "The code tracks more than it did. Start over with --fresh, or track as before.",
            )
        return saved.pop(name)

    def _restore(self, name: str, tracked: Any, state: Any) -> None:
        assert self._resume is not None
        try:
            unwrapped(tracked).load_state_dict(state)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"checkpoint {self._resume.name} does not fit {name}: {error}",
                "The code or its parameters changed since. Start over with --fresh.",
            ) from error

    def restore_randomness(self, seed: int) -> None:
        """
        Let this rank's random generators go on, or begin, each rank with its own numbers.

        Called when the loop begins, by when everything is tracked.

        Raises:
            CheckpointError: If the checkpoint holds what is not tracked.
        """
        left = [*self._saved, *(self._own["generators"] if self._own else ())]
        if left:
            raise CheckpointError(
                f"{', '.join(sorted(left))} of the checkpoint is not tracked any more",
                "It would be lost with the next checkpoint. Track it, or start over with --fresh.",
            )
        if self._own is not None:
            randomness.restore(self._own["random"])
        else:
            step = self._resume.step if self._resume else 0
            randomness.seed_everything(seed, self._group.rank + 1, step)

    def save(self, manifest: CheckpointManifest) -> None:
        """
        Write and commit a checkpoint. Every rank calls this at the same step.

        Raises:
            FootplateError: On every rank, if it fails on one; nothing of it is left behind.
        """
        try:
            written = self._group.agree(lambda: self._write(manifest))
            files = tuple(file for of_rank in written for file in of_rank)
            self._group.agree_on_first(lambda: self._publish(manifest.with_files(files)))
        except FencedError:
            raise
        except FootplateError:
            self._group.agree_on_first(lambda: self._discard_unless_committed(manifest.name))
            raise
        self._saved_at = self._clock()

    def _discard_unless_committed(self, name: CheckpointName) -> None:
        if not is_committed(self._store, self._run, name):
            discard(self._store, self._run, name)

    def _write(self, manifest: CheckpointManifest) -> list[CheckpointFile]:
        own = {
            "random": randomness.capture(),
            "generators": {name: item.get_state() for name, item in self._generators.items()},
        }
        states: dict[str, Any] = {rank_file(self._group.rank): own}
        if self._group.is_first:
            states[SHARED_FILE] = {name: _state(name, item) for name, item in self._tracked.items()}
        return [
            write_state(self._store, self._run, manifest.name, file_name, state)
            for file_name, state in states.items()
        ]

    def _publish(self, manifest: CheckpointManifest) -> None:
        self._before_commit()
        commit(self._store, self._run, manifest)
        try:
            prune(self._store, self._run, attempt=self._attempt, keep_last=self._keep_last)
        except StoreError as error:
            # The checkpoint counts. What could not be removed now is removed after the next one.
            log.warning("old checkpoints can't be removed: %s", error)


def _state(name: str, tracked: Any) -> Any:
    try:
        return unwrapped(tracked).state_dict()
    except FootplateError:
        raise
    except Exception as error:  # the user's state_dict() may raise anything
        raise UserCodeError(
            f"state_dict() of {name} failed: {type(error).__name__}: {error}",
            trace="".join(traceback.format_exception(error)),
        ) from error
