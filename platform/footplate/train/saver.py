"""
Saving while training goes on.

The training thread copies the state to memory of the host, which takes as long as that copy; all
that follows is done by another thread: files are written, and once those of all ranks are there
the checkpoint is committed. One save is under way at a time. How it ended is known to that
thread of every rank, since the threads tell each other over connections of their own; the
training threads take it up at steps that they agree on, so that all of them end training, or
none.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from footplate.checkpoints import CheckpointFile, CheckpointManifest, discard
from footplate.checkpoints.integrity import read_checked
from footplate.checkpoints.publish import commit
from footplate.checkpoints.retention import Retention
from footplate.checkpoints.snapshot import Snapshot, Snapshotter
from footplate.checkpoints.writing import write_snapshot
from footplate.errors import CheckpointError, FencedError, FootplateError, StoreError
from footplate.store import CheckpointName, RunPaths, Store, was_refused
from footplate.train.group import RankGroup
from footplate.train.saving_thread import SavingThread
from footplate.train.setbacks import Setbacks
from footplate.train.tracked import Tracked

__all__ = ["EndedSave", "Saver", "Stall"]

T = TypeVar("T")

log = logging.getLogger(__name__)

_REMEMBERED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Stall:
    """
    For how long a save held up training.

    Attributes:
        waited_s: For the one before, which was still being written.
        copied_s: While the state was copied.
    """

    waited_s: float
    copied_s: float

    @property
    def total_s(self) -> float:
        """Altogether."""
        return self.waited_s + self.copied_s


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedSave:
    """
    A save that is over.

    Attributes:
        error: Why there is no checkpoint; None if it counts.
        outlook: What follows if there is none.
        stall: For how long it held up training.
        took_s: From the beginning of the copy to the end.
    """

    manifest: CheckpointManifest
    error: BaseException | None
    stall: Stall
    took_s: float
    outlook: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Save:
    """One that is under way."""

    manifest: CheckpointManifest
    snapshot: Snapshot
    stall: Stall
    began: float
    is_retry: bool


class Saver:
    """
    The checkpoints of one rank's process; all of its methods are for the training thread.

    Args:
        tracked: What is saved.
        retention: Removes old checkpoints; used on rank 0.
        has_saved: The run has a checkpoint already.
        before_commit: Called on rank 0, in the other thread, once all data is written.
        on_end: Told of every save that is over, when the ranks take that up.
    """

    def __init__(
        self,
        store: Store,
        run: RunPaths,
        group: RankGroup,
        tracked: Tracked,
        retention: Retention,
        *,
        has_saved: bool,
        before_commit: Callable[[], None],
        on_end: Callable[[EndedSave], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._run = run
        self._group = group
        self._others = group.twin()  # the same ranks, for the saving thread alone
        self._tracked = tracked
        self._retention = retention
        self._before_commit = before_commit
        self._on_end = on_end
        self._clock = clock
        self._setbacks = Setbacks(has_saved=has_saved, clock=clock)
        self._snapshotter = Snapshotter(
            group.gather, rank=group.rank, world_size=group.world_size, device=group.device
        )
        self._thread = SavingThread()
        self._refused = False
        self._ended: deque[EndedSave] = deque(maxlen=_REMEMBERED)
        self._ended_count = 0
        self._taken_up = 0
        self._began_at = clock()

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way here; other ranks may be a moment before or behind."""
        return self._thread.is_busy

    @property
    def ended(self) -> int:
        """How many saves are over here, well or not; the ranks take up what is over on all."""
        return self._ended_count

    @property
    def has_news(self) -> bool:
        """Whether a save is over here that the ranks have not taken up yet."""
        return self._taken_up < self._ended_count

    @property
    def is_retry_due(self) -> bool:
        """Whether a save that failed is to be repeated now."""
        return not self.is_busy and self._setbacks.is_retry_due

    @property
    def is_failing(self) -> bool:
        """Whether the last save failed."""
        return self._setbacks.pause_s is not None

    @property
    def save_s(self) -> float:
        """How long a save took lately, its stall included; 0 if that is not known."""
        return max((save.took_s for save in self._ended), default=0.0)

    @property
    def seconds_since_begun(self) -> float:
        """Since the last save of this attempt began, or the attempt itself."""
        return self._clock() - self._began_at

    def begin(self, manifest: CheckpointManifest) -> Stall:
        """
        Copy the state and let it be written. Every rank calls this at the same step.

        Raises:
            FootplateError: On every rank, if the state of one can't be copied, or a save before
                this one ends training.
        """
        began = self._clock()
        self._thread.wait()
        self.take_up(self.ended)
        waited_s, self._began_at = self._clock() - began, self._clock()
        snapshot = self._copied()
        stall = Stall(waited_s=waited_s, copied_s=self._clock() - self._began_at)
        manifest = manifest.model_copy(update={"stall_s": stall.total_s})
        save = _Save(
            manifest=manifest,
            snapshot=snapshot,
            stall=stall,
            began=self._began_at,
            is_retry=self.is_failing,
        )
        self._thread.begin(lambda: self._complete(save))
        return stall

    def complete(self, manifest: CheckpointManifest) -> None:
        """
        Save, and wait until the checkpoint counts. Every rank calls this at the same step.

        Raises:
            FootplateError: On every rank, if that is not to be had.
        """
        self.begin(manifest)
        self.settle()
        while (pause_s := self._setbacks.pause_s) is not None:
            time.sleep(pause_s)
            self.begin(manifest)
            self.settle()

    def settle(self) -> None:
        """
        Wait for the save that is under way. Every rank calls this at the same step.

        Raises:
            FootplateError: On every rank, if it ends training.
        """
        self._thread.wait()
        self.take_up(self.ended)

    def take_up(self, ended: int) -> None:
        """
        Draw the consequences of saves that are over on all ranks.

        Args:
            ended: How many are over on all of them; the same on every rank.

        Raises:
            FootplateError: On every rank, if one of them ends training.
        """
        while self._taken_up < ended:
            save = self._ended[self._taken_up - self._ended_count]
            self._taken_up += 1
            if save.error is None:
                self._setbacks.saved()
                self._on_end(save)
                continue
            is_final = self._setbacks.failed(save.error, refused=self._refused)
            self._on_end(replace(save, outlook=self._setbacks.outlook))
            if is_final:
                raise save.error

    def close(self, timeout_s: float) -> None:
        """Wait so long for the save that is under way, and end the thread; the last call."""
        if not self._thread.close(timeout_s):
            log.warning("a checkpoint is still being written after %.0f s", timeout_s)

    def _copied(self) -> Snapshot:
        states: list[tuple[dict[str, object], dict[str, object]]] = []
        self._group.agree(lambda: states.append((self._tracked.shared(), self._tracked.own())))
        ((shared, own),) = states
        return self._snapshotter.take(shared, own, replicated=self._tracked.replicated())

    def _complete(self, save: _Save) -> None:
        """Write, commit, and tidy up; in the saving thread."""
        error: BaseException | None = None
        try:
            self._publish(save)
        except BaseException as failure:  # the training thread raises it
            error = _without_frames(failure)
        self._ended.append(
            EndedSave(
                manifest=save.manifest,
                error=error,
                stall=save.stall,
                took_s=self._clock() - save.began,
            )
        )
        self._ended_count += 1
        # Who leaves because machines go has no time for it; the next attempt does it.
        if error is None and self._group.is_first and save.manifest.reason != "preemption":
            self._prune()

    def _publish(self, save: _Save) -> None:
        name = save.manifest.name
        self._refused = False
        if save.is_retry and self._others.agree_on_first(
            lambda: self._committed_or_discarded(name)
        ):
            return  # only the answer to that was lost, and what counts is never written again
        try:
            written = self._others.agree(lambda: self._noting(lambda: self._written(save)))
            manifest = save.manifest.with_files(tuple(file for each in written for file in each))
            self._others.agree_on_first(lambda: self._noting(lambda: self._commit(manifest)))
        except FencedError:
            raise
        except FootplateError:
            self._refused = any(self._others.gather(self._refused))
            with suppress(FootplateError):  # what is left is collected later
                if self._others.agree_on_first(lambda: self._committed_or_discarded(name)):
                    return
            raise

    def _noting(self, action: Callable[[], T]) -> T:
        """Note a refusal where it happens: an error of another rank comes without its cause."""
        try:
            return action()
        except StoreError as error:
            self._refused = was_refused(error)
            raise

    def _written(self, save: _Save) -> tuple[CheckpointFile, ...]:
        return write_snapshot(self._store, self._run, save.manifest.name, save.snapshot)

    def _commit(self, manifest: CheckpointManifest) -> None:
        self._before_commit()
        commit(self._store, self._run, manifest)

    def _prune(self) -> None:
        try:
            self._retention.prune()
        except FootplateError as error:
            # The checkpoint counts. What could not be removed now is removed after the next one;
            # and whether a newer attempt has taken over, the next one will tell.
            log.warning("old checkpoints can't be removed: %s", error)
        except Exception:  # of ours; no reason to stop saving
            log.exception("old checkpoints can't be removed")

    def _committed_or_discarded(self, name: CheckpointName) -> bool:
        """
        Whether it counts after all; if not, nothing of it is left.

        A store may do what it was asked for long after nobody waits for the answer any more, so
        the marker alone says nothing.
        """
        try:
            read_checked(self._store, self._run.checkpoint(name), name)
        except CheckpointError:
            discard(self._store, self._run, name)
            return False
        return True


def _without_frames(error: BaseException) -> BaseException:
    """The error without what it would keep in memory: the state that was to be written."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
