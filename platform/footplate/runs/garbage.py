"""
Removing what nobody needs: orphans of runs that are over, code that no run uses, pins of no use.

Whatever may still be at work is left alone, with the reason. On this machine the lock of a run's
name is held meanwhile, so that none begins; elsewhere the newest claim is looked at before each
removal. Checkpoints that count and pinned ones are never garbage.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from footplate.checkpoints import Remover, read_pins, unpin
from footplate.checkpoints.origin import pinning_run
from footplate.errors import FencedError, RunBusyError, StoreError
from footplate.runs.history import PastRun, find_run_at
from footplate.runs.holding import check_unclaimed, held
from footplate.runs.inventory import StoredRun, stored_runs
from footplate.runs.space import run_space
from footplate.runs.standing import standing_of
from footplate.store import CODE_ARCHIVES, CheckpointName, RunPaths, Store

__all__ = ["CODE_AGE_S", "Found", "collect_garbage"]

CODE_AGE_S = 30 * 24 * 3600.0
"""
A job that waits in a queue is not in the store yet, but its code is: so that is kept for long.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """
    Something that is garbage, or looks like it.

    Attributes:
        what: For people.
        path: In the store.
        bytes: That it takes.
        why_left: Why it is left alone; None if it is removed.
    """

    kind: Literal["orphan", "code", "pin", "run"]
    what: str
    path: str
    bytes: int
    why_left: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {
            "kind": self.kind,
            "what": self.what,
            "path": self.path,
            "bytes": self.bytes,
            "removed": self.why_left is None,
            "why_left": self.why_left,
        }


def collect_garbage(
    store: Store, *, dry_run: bool = False, code_age_s: float = CODE_AGE_S
) -> Iterator[Found]:
    """
    Remove garbage.

    Args:
        dry_run: Only say what would be removed.
        code_age_s: An archive of code that no run in the store names is removed once it is older.

    Yields:
        What was removed, or would be, and what is left alone, one by one.

    Raises:
        StoreError: If the store can't be listed.
    """
    now = time.time()
    runs = stored_runs(store, now=now)
    # First, for the longer ago the runs were listed, the more may have come that use some.
    yield from _code(store, runs, now - code_age_s, dry_run)
    users = {run.paths.uid: run for run in runs}
    for run in runs:
        try:
            yield from _pins(store, run.paths, users, dry_run)
            yield from _of_run(store, run, dry_run)
        except StoreError as error:
            yield _left(run.paths, 0, error.message)


def _pins(
    store: Store, run: RunPaths, users: Mapping[str, StoredRun], dry_run: bool
) -> Iterator[Found]:
    """Those of runs that were to start from a checkpoint, and are over or not there any more."""
    for name, pin in read_pins(store, run).items():
        uid = pinning_run(name)
        if uid is None or not _is_done(store, uid, users.get(uid)):
            continue
        if not dry_run:
            unpin(store, run, name)
        what = f"pin {name} on {run.namespace}/{run.name} {pin.checkpoint}"
        yield Found(kind="pin", what=what, path=run.pin(name), bytes=0)


def _is_done(store: Store, uid: str, user: StoredRun | None) -> bool:
    """Whether a run is not there, or over, as it is now."""
    if user is None:
        return not _has_come(store, uid)
    if user.past is None or user.standing is None or user.standing.may_go_on:
        return False
    now = find_run_at(store, user.paths)
    return now is None or not standing_of(store, now, now=time.time()).may_go_on


def _has_come(store: Store, uid: str) -> bool:
    """Whether there is a run that was not when runs were listed: it pins what it starts from."""
    names = (
        RunPaths(namespace=namespace, name=name, uid=uid)
        for namespace in store.folders("")
        for name in store.folders(namespace)
    )
    return any(store.size(paths.record) is not None for paths in names)


def _of_run(store: Store, run: StoredRun, dry_run: bool) -> Iterator[Found]:
    if run.past is None or run.standing is None:
        yield _left(run.paths, 0, run.trouble or "it can't be read")
        return
    if not run.standing.is_over:
        taken = run_space(store, run.past)
        if taken.orphans:
            why = f"it is {run.standing.state}, {run.standing.why}"
            yield _left(run.paths, sum(taken.sizes.bytes[name] for name in taken.orphans), why)
        return
    try:
        with nullcontext() if dry_run else held(store, run.paths):
            yield from _orphans(store, run.past, dry_run)
    except (RunBusyError, FencedError) as error:
        yield _left(run.paths, 0, error.message)


def _orphans(store: Store, judged: PastRun, dry_run: bool) -> Iterator[Found]:
    """The orphans of a run that is over, unless it has begun to work again since it was judged."""
    taken = run_space(store, judged)
    remover = Remover(store, judged.paths)
    for name in taken.orphans:
        if not dry_run:
            check_unclaimed(store, judged)
            if not remover.remove(name):
                continue
        yield _orphan(judged.paths, name, taken.sizes.bytes[name])


def _code(store: Store, runs: Sequence[StoredRun], before: float, dry_run: bool) -> Iterator[Found]:
    used = {
        str(run.past.record.code.get("archive", "")).removeprefix("sha256:")
        for run in runs
        if run.past is not None
    }
    unread = [run for run in runs if run.past is None]
    for info in store.objects(CODE_ARCHIVES):
        name = info.path.rpartition("/")[2].removesuffix(".zip")
        if name in used:
            continue
        why = None
        # Whoever submits a job writes its code anew: looked at again right before.
        now = info if dry_run else store.info(info.path)
        if now is None:
            continue
        if unread:
            why = f"{unread[0].paths.root} may need it, which can't be read"
        elif now.modified > before:
            why = "a job that still waits in a queue may need it: it is not old enough"
        elif not dry_run:
            store.delete(info.path)
        yield Found(
            kind="code",
            what=f"code {name[:12]}",
            path=info.path,
            bytes=info.size,
            why_left=why,
        )


def _orphan(run: RunPaths, name: CheckpointName, size: int) -> Found:
    what = f"{run.namespace}/{run.name} {name}"
    return Found(kind="orphan", what=what, path=run.checkpoint(name), bytes=size)


def _left(run: RunPaths, size: int, why: str) -> Found:
    what = f"{run.namespace}/{run.name} {run.uid}"
    return Found(kind="run", what=what, path=run.root, bytes=size, why_left=why)
