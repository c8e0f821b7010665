"""
Which checkpoints are removed, and when.

The policy is :func:`kept`, pure; pinned checkpoints stay in any case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from footplate.checkpoints.listing import Listed, counted, list_checkpoints
from footplate.checkpoints.manifest import read_manifest
from footplate.checkpoints.removal import Remover
from footplate.errors import CheckpointError
from footplate.spec import Keep
from footplate.store import (
    CheckpointName,
    Claim,
    RunPaths,
    Store,
    ask_many,
    check_not_fenced,
    counted_until,
    read_claims,
)

__all__ = [
    "Facts",
    "Retention",
    "collect_older_orphans",
    "collect_orphans",
    "kept",
    "kept_for",
    "orphans",
    "unknown_metric",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What the policy may go by besides the step: the epoch of the last step, newest metrics."""

    epoch: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


FactsOf = Callable[[CheckpointName], Facts | None]


def kept(
    names: Collection[CheckpointName],
    keep: Keep,
    *,
    facts: FactsOf,
    protected: Collection[CheckpointName] = (),
) -> set[CheckpointName]:
    """
    Those that stay.

    What has gone by this rule would not stay by it later either: removing after each checkpoint
    or once at the end leaves the same.

    Args:
        names: All that count.
        facts: Of one of them; asked only where the policy goes by them. None if nobody can tell:
            such a one stays.
        protected: Stay in any case.
    """
    rules = kept_for(names, keep, facts=facts)
    return {name for name in names if rules[name] or name in protected}


def kept_for(
    names: Collection[CheckpointName], keep: Keep, *, facts: FactsOf
) -> dict[CheckpointName, tuple[str, ...]]:
    """The rules by which each of them stays: ``last``, ``best``, ``every``; see :func:`kept`."""
    ordered = sorted(names)
    stay = {
        "last": set(ordered[-keep.last :]),
        "best": set(_best(ordered, keep, facts)),
        "every": set(_last_of_each_stretch(ordered, keep, facts)),
    }
    return {name: tuple(rule for rule in stay if name in stay[rule]) for name in ordered}


def _last_of_each_stretch(
    ordered: Sequence[CheckpointName], keep: Keep, facts: FactsOf
) -> Iterator[CheckpointName]:
    """Of steps 1 to n, of n + 1 to 2 n ...: the newest is the last of its own for now."""
    if keep.every is None:
        return
    last: dict[int, CheckpointName] = {}
    for name in ordered:
        if keep.every.unit == "steps":
            count = name.step - 1
        elif (known := facts(name)) is not None:
            count = known.epoch
        else:
            yield name
            continue
        last[count // int(keep.every.every)] = name
    yield from last.values()


def _best(
    ordered: Sequence[CheckpointName], keep: Keep, facts: FactsOf
) -> Iterator[CheckpointName]:
    """With a value each: all checkpoints between two evaluations have the value of the first."""
    if not keep.best or keep.by is None:
        return
    first: dict[float, CheckpointName] = {}
    for name in ordered:
        known = facts(name)
        if known is None:
            yield name
        elif math.isfinite(value := known.metrics.get(keep.by, math.nan)):
            first.setdefault(value, name)
    for value in sorted(first, reverse=keep.mode == "max")[: keep.best]:
        yield first[value]


def unknown_metric(keep: Keep, metrics: Mapping[str, float]) -> str | None:
    """What to tell whoever has asked for the best by a metric that is not recorded."""
    if not keep.best or keep.by is None or keep.by in metrics:
        return None
    there = ", ".join(sorted(metrics)) or "none"
    return f"checkpoint.keep.by = {keep.by!r} is no metric of this run, which has {there}"


class Retention:
    """
    What an attempt does about old checkpoints, its own and those before it.

    It remembers what it has read: the claims before its own and manifests never change.

    Args:
        attempt: The number of the attempt.
    """

    def __init__(self, store: Store, run: RunPaths, *, attempt: int, keep: Keep) -> None:
        self._store = store
        self._run = run
        self._attempt = attempt
        self._keep = keep
        self._facts: dict[CheckpointName, Facts | None] = {}
        self._remover = Remover(store, run)

    def prune(self) -> list[CheckpointName]:
        """
        Remove what the policy does not keep, and what no attempt will ever read.

        What this attempt has started from stays: it is the newest that was read whole. To be
        called while no checkpoint of this attempt is being written.

        Returns:
            What was removed.

        Raises:
            FencedError: If a newer attempt exists: then what to keep is its business.
            StoreError: If the store fails; what was not removed is the next time.
        """
        check_not_fenced(self._store, self._run, self._attempt)
        listed = list_checkpoints(self._store, self._run)
        names = counted(listed.committed, counted_until(self._claims))
        self._read_facts(names)
        start = self._claims[-1].start
        stay = kept(
            names, self._keep, facts=self._facts.__getitem__, protected=(start,) if start else ()
        )
        expired = [name for name in names if name not in stay]
        return [
            name
            for name in (*self._orphans(listed), *expired)
            if _remove_unfenced(self._store, self._run, self._remover, name, self._attempt)
        ]

    @cached_property
    def _claims(self) -> list[Claim]:
        return read_claims(self._store, self._run)

    def _orphans(self, listed: Listed) -> Iterator[CheckpointName]:
        """Of earlier attempts; and of this one, what is older than its newest."""
        own = [name for name in listed.committed if name.attempt == self._attempt]
        for name in orphans(listed, self._claims, keep_last=self._keep.last):
            is_left = name in listed.uncommitted and bool(own) and name < own[-1]
            if name.attempt < self._attempt or (name.attempt == self._attempt and is_left):
                yield name

    def _read_facts(self, names: Sequence[CheckpointName]) -> None:
        """Read the manifests that the policy goes by and that are not known yet."""
        if self._keep.best or (self._keep.every and self._keep.every.unit == "epochs"):
            new = [name for name in names if name not in self._facts]
            found = ask_many(self._store, self._facts_of, new)
            self._facts.update(zip(new, found, strict=True))

    def _facts_of(self, name: CheckpointName) -> Facts | None:
        try:
            manifest = read_manifest(self._store, self._run, name)
        except CheckpointError:
            return None
        return Facts(epoch=manifest.epoch, metrics=manifest.metrics) if manifest else None


def orphans(
    listed: Listed, claims: Sequence[Claim], *, keep_last: int | None = None
) -> list[CheckpointName]:
    """
    What no attempt will ever read; also what one is writing just now.

    That is folders without a marker, those that do not count, and damaged ones once the newest
    attempt has enough of its own: it may have been the machine that was at fault, not they.

    Args:
        keep_last: How many of its own are enough; None: damaged ones stay.
    """
    counts = counted(listed.committed, counted_until(claims))
    uncounted = (name for name in listed.committed if name not in counts)
    newest = claims[-1].attempt if claims else None
    own = sum(name.attempt == newest for name in listed.committed)
    damaged = listed.damaged if keep_last is not None and own >= keep_last else ()
    return sorted((*listed.uncommitted, *damaged, *uncounted))


def collect_orphans(store: Store, run: RunPaths) -> None:
    """
    Remove what no attempt will ever read.

    To be called only while no other process works on the run.
    """
    remover = Remover(store, run)
    for name in orphans(list_checkpoints(store, run), read_claims(store, run)):
        remover.remove(name)


def collect_older_orphans(store: Store, run: RunPaths, *, attempt: int) -> None:
    """
    Remove what earlier attempts have left that no attempt will ever read.

    One of them may still be at work: what it writes now does not count either.

    Raises:
        FencedError: If a newer attempt exists: then what to keep is its business.
    """
    found = orphans(list_checkpoints(store, run), read_claims(store, run))
    remover = Remover(store, run)
    for name in found:
        if name.attempt < attempt:
            _remove_unfenced(store, run, remover, name, attempt)


def _remove_unfenced(
    store: Store, run: RunPaths, remover: Remover, name: CheckpointName, attempt: int
) -> bool:
    """Remove a checkpoint that is not pinned, as long as no newer attempt exists."""
    # For each: what a newer attempt has claimed to start from may be among them.
    return remover.remove(name, check=lambda: check_not_fenced(store, run, attempt))
