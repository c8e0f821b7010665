"""Saving, failing, going on, pinning and removing in any order: what is needed stays."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from footplate.checkpoints import (
    CheckpointManifest,
    Facts,
    Retention,
    collect_older_orphans,
    committed,
    counting,
    kept,
    list_checkpoints,
    pin,
    pinned,
    unpin,
)
from footplate.checkpoints.manifest import COMMITTED, DAMAGED, MANIFEST
from footplate.errors import FencedError
from footplate.spec import Keep
from footplate.store import CheckpointName, Claim, RunPaths, Store, claim_next

RUN = RunPaths(namespace="local", name="digits", uid="uid-1")
BY = "valid/loss"
DATA = "rank-00000.bin"

keeps = st.builds(
    lambda last, best, every: Keep(last=last, best=best, by=BY if best else None, every=every),
    st.integers(1, 3),
    st.integers(0, 2),
    st.none() | st.sampled_from(["7 steps", "2 epochs"]),
)


class Sequences(RuleBasedStateMachine):
    """One run, its attempts and whoever looks after it."""

    @initialize(keep=keeps)
    def begin(self, keep: Keep) -> None:
        """The first attempt."""
        self.folder = tempfile.mkdtemp(prefix="footplate-")
        self.store = Store(self.folder)
        self.keep = keep
        self.step = self.attempt = 0
        self.start: CheckpointName | None = None
        self.metrics: dict[CheckpointName, float] = {}
        self._claim(None)

    def teardown(self) -> None:
        """Leave nothing behind."""
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def _claim(self, start: CheckpointName | None) -> None:
        self.attempt += 1
        self.start = start
        self.step = start.step if start else 0
        claim: dict[str, Any] = {"token": "t", "host": "h", "pid": 1, "claimed": 1.0, "spec": {}}
        name = str(start) if start else None
        claim_next(self.store, RUN, Claim(attempt=self.attempt, starts_from=name, **claim))
        self.retention = Retention(self.store, RUN, attempt=self.attempt, keep=self.keep)

    def _write(self, name: CheckpointName, value: float | None) -> None:
        folder = RUN.checkpoint(name)
        self.store.put(f"{folder}/{DATA}", b"data")
        if value is None:
            return
        self.metrics[name] = value
        manifest = CheckpointManifest(
            step=name.step,
            position=name.step,
            epoch=name.step // 5,
            attempt=name.attempt,
            world_size=1,
            written=1.0,
            metrics={BY: value},
        )
        self.store.put(f"{folder}/{MANIFEST}", manifest.to_json())
        self.store.put(f"{folder}/{COMMITTED}", b"")

    @rule(steps=st.integers(1, 4), value=st.sampled_from([0.1, 0.2, 0.3, 0.4]))
    def save(self, steps: int, value: float) -> None:
        """A checkpoint of the newest attempt, and what is done after each."""
        self.step += steps
        self._write(CheckpointName(self.step, self.attempt), value)
        self.prune()

    @rule(steps=st.integers(1, 4), value=st.sampled_from([None, 0.1]))
    def save_and_die(self, steps: int, value: float | None) -> None:
        """One that is cut short, or after which nothing more is done."""
        self.step += steps
        self._write(CheckpointName(self.step, self.attempt), value)

    @precondition(lambda self: self.attempt > 1)
    @rule(steps=st.integers(1, 4), value=st.sampled_from([None, 0.05]))
    def save_late(self, steps: int, value: float | None) -> None:
        """An attempt that does not know yet that it is over goes on writing."""
        self._write(CheckpointName(self.step + steps, self.attempt - 1), value)

    @rule(back=st.integers(0, 2))
    def go_on(self, back: int) -> None:
        """A new attempt, from the newest or, if that turned out to be damaged, from one before."""
        names = counting(self.store, RUN)
        self._claim(names[-1 - back] if back < len(names) else None)

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        """Somebody wants one to stay."""
        if names := committed(self.store, RUN):
            name = data.draw(st.sampled_from(names))
            pin(self.store, RUN, f"pin-{name}", name, by="ada", time=1.0)

    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        """Or does not any more."""
        if names := sorted(pinned(self.store, RUN)):
            unpin(self.store, RUN, f"pin-{data.draw(st.sampled_from(names))}")

    @rule(data=st.data())
    def find_damage(self, data: st.DataObject) -> None:
        """One but the newest is found damaged."""
        if names := [name for name in committed(self.store, RUN)[:-1] if name != self.start]:
            name = data.draw(st.sampled_from(names))
            self.store.put(f"{RUN.checkpoint(name)}/{DAMAGED}", b"")

    @rule()
    def prune(self) -> None:
        """What the policy keeps is left of what counted, and none that an older attempt left."""
        before, held = counting(self.store, RUN), pinned(self.store, RUN)
        begun = self._begun()
        self.retention.prune()
        stay = kept(before, self.keep, facts=self._facts, protected=self._protected() | held)
        assert counting(self.store, RUN) == sorted(stay)
        listed = list_checkpoints(self.store, RUN)
        left = {*listed.uncommitted, *listed.damaged, *listed.committed} - stay - held
        own = [name for name in listed.committed if name.attempt == self.attempt]
        waiting = set(listed.damaged) if len(own) < self.keep.last else set()
        assert all(name.attempt == self.attempt for name in left - waiting)
        assert self._begun() == begun

    @precondition(lambda self: self.attempt > 1)
    @rule()
    def prune_late(self) -> None:
        """An attempt that is over removes nothing."""
        before = self.store.objects(RUN.checkpoints)
        with pytest.raises(FencedError):
            Retention(self.store, RUN, attempt=self.attempt - 1, keep=Keep(last=1)).prune()
        assert self.store.objects(RUN.checkpoints) == before

    @rule()
    def tidy_up(self) -> None:
        """As at the end of a run."""
        before = counting(self.store, RUN)
        collect_older_orphans(self.store, RUN, attempt=self.attempt)
        assert counting(self.store, RUN) == before

    @invariant()
    def what_is_needed_is_there(self) -> None:
        """Whole: what the newest attempt has started from, and everything that counts."""
        if not hasattr(self, "store"):
            return
        there = committed(self.store, RUN)
        assert self._protected() <= set(there)
        for name in there:
            assert self.store.get(f"{RUN.checkpoint(name)}/{DATA}") == b"data"

    def _protected(self) -> set[CheckpointName]:
        return {self.start} if self.start is not None else set()

    def _begun(self) -> set[CheckpointName]:
        """What the newest attempt may be writing now."""
        listed = list_checkpoints(self.store, RUN)
        own = [name for name in listed.committed if name.attempt == self.attempt]
        newest = own[-1].step if own else 0
        return {
            name
            for name in listed.uncommitted
            if name.attempt == self.attempt and name.step > newest
        }

    def _facts(self, name: CheckpointName) -> Facts:
        return Facts(epoch=name.step // 5, metrics={BY: self.metrics[name]})


TestSequences = Sequences.TestCase
TestSequences.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
