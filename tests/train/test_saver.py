"""What is tracked is saved and comes back; what can't be is refused by name."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from footplate.checkpoints import (
    CheckpointManifest,
    committed,
    find_resume_point,
    read_manifest,
)
from footplate.checkpoints.integrity import read_checked
from footplate.checkpoints.restore import CheckpointReader
from footplate.checkpoints.retention import Retention
from footplate.errors import CheckpointError, FencedError, StoreError, UserCodeError
from footplate.spec import Keep
from footplate.store import Claim, RunPaths, Store, claim_next, read_claims
from footplate.train.group import RankGroup
from footplate.train.saver import EndedSave, Saver
from footplate.train.start import Start
from footplate.train.tracked import Tracked
from s3_relay import Refusal, S3Relay
from s3_server import S3Server

_RUN = RunPaths(namespace="local", name="toy", uid="uid")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a run of which one attempt is claimed."""
    store = Store(str(tmp_path / "runs"))
    _claim(store, 1)
    return store


def _claim(store: Store, attempt: int, starts_from: str | None = None) -> None:
    claim = Claim(
        attempt=attempt,
        token="token",  # noqa: S106 - tells claims apart, no secret
        host="here",
        pid=1,
        claimed=1000.0,
        starts_from=starts_from,
        spec={},
    )
    claim_next(store, _RUN, claim)


class _Kept:
    """
    What one rank tracks and saves.

    Args:
        resumes: Go on from the newest checkpoint.
    """

    def __init__(
        self,
        store: Store,
        group: RankGroup,
        *,
        keep_last: int = 2,
        resumes: bool = True,
        before_commit: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        run = RunPaths(namespace="local", name="toy", uid="uid")
        resume, _ = find_resume_point(store, run, read_claims(store, run))
        start = None
        if resume is not None and resumes:
            reader = CheckpointReader(store, run.checkpoint(resume.name), resume)
            start = Start(manifest=resume, reader=reader)
        self.tracked = Tracked(group.rank, start)
        self.ended: list[EndedSave] = []
        self.saver = Saver(
            store,
            run,
            group,
            self.tracked,
            Retention(store, run, attempt=1, keep=Keep(last=keep_last)),
            has_saved=start is not None,
            before_commit=before_commit,
            on_end=self.ended.append,
            clock=clock,
        )

    def track(self, name: str, item: Any) -> None:
        """Track something."""
        self.tracked.add(name, item)

    def save(self, manifest: CheckpointManifest) -> None:
        """Save, to the end."""
        self.saver.complete(manifest)


def _saver(store: Store, group: RankGroup, *, keep_last: int = 2) -> _Kept:
    """A saver that goes on from the newest checkpoint."""
    return _Kept(store, group, keep_last=keep_last)


def _manifest(step: int, attempt: int = 1, world_size: int = 1) -> CheckpointManifest:
    return CheckpointManifest(
        step=step,
        position=step * 4,
        epoch=0,
        attempt=attempt,
        world_size=world_size,
        written=1000.0,
    )


def _tracked(width: int = 3) -> dict[str, Any]:
    """One of everything, used a little so that there is state."""
    torch.manual_seed(width)
    model = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    for _ in range(3):
        model(torch.randn(4, width)).square().sum().backward()
        optimizer.step()
        scheduler.step()
    generator = torch.Generator().manual_seed(5)
    torch.rand(3, generator=generator)
    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "generator": generator,
    }


def _states(tracked: dict[str, Any]) -> dict[str, Any]:
    return {
        name: item.get_state() if isinstance(item, torch.Generator) else item.state_dict()
        for name, item in tracked.items()
    }


def test_everything_comes_back(store: Store, alone: RankGroup) -> None:
    """Models, optimizers, schedulers and generators are restored bit for bit when tracked."""
    saved = _tracked()
    saver = _saver(store, alone)
    for name, item in saved.items():
        saver.track(name, item)
    saver.save(_manifest(3))
    expected = _states(saved)

    restored = _tracked(width=3)
    torch.nn.init.zeros_(restored["model"][0].weight)
    restored["generator"].manual_seed(99)
    saver = _saver(store, alone)
    for name, item in restored.items():
        saver.track(name, item)

    torch.testing.assert_close(_states(restored), expected, rtol=0, atol=0)
    torch.testing.assert_close(
        torch.rand(5, generator=restored["generator"]),
        torch.rand(5, generator=saved["generator"]),
        rtol=0,
        atol=0,
    )


class _HalfStateful:
    """Has one of the two methods."""

    def state_dict(self) -> dict[str, int]:
        """Nothing."""
        return {}


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        ({"lr": 0.1}, "dict"),
        (torch.zeros(3), "Tensor"),
        (None, "NoneType"),
        (_HalfStateful(), "_HalfStateful"),
        (nn.Linear, "type"),
    ],
)
def test_odd_objects_are_refused(store: Store, alone: RankGroup, odd: object, kind: str) -> None:
    """What has no state to save and load is refused when tracked, not when first saved."""
    with pytest.raises(UserCodeError, match=f"^thing is a {kind}, without state_dict"):
        _saver(store, alone).track("thing", odd)


def test_a_name_is_given_once(store: Store, alone: RankGroup) -> None:
    """A second object of the same name would silently take the place of the first."""
    saver = _saver(store, alone)
    saver.track("model", nn.Linear(1, 1))

    with pytest.raises(UserCodeError, match="model is tracked already"):
        saver.track("model", nn.Linear(1, 1))


def _saved_and_resumed(store: Store, group: RankGroup, **tracked: Any) -> _Kept:
    saver = _saver(store, group)
    for name, item in tracked.items():
        saver.track(name, item)
    saver.save(_manifest(3))
    return _saver(store, group)


def test_a_name_that_is_left_out_is_missed(store: Store, alone: RankGroup) -> None:
    """State that nobody takes up would be lost with the next checkpoint: it is named instead."""
    saver = _saver(store, alone)
    saver.track("model", nn.Linear(2, 2))
    saver.track("ema", nn.Linear(2, 2))
    saver.save(_manifest(1))
    resumed = _saver(store, alone)
    resumed.track("model", nn.Linear(2, 2))
    with pytest.raises(CheckpointError, match="ema of the checkpoint is not tracked any more"):
        resumed.tracked.begin(0)


def test_a_new_name_is_not_in_the_checkpoint(store: Store, alone: RankGroup) -> None:
    """Code that tracks more than was saved learns what was saved."""
    saver = _saved_and_resumed(store, alone, model=nn.Linear(2, 2))

    with pytest.raises(CheckpointError, match=r"step-00000003\.a0001 holds \['model'\], not 'net'"):
        saver.track("net", nn.Linear(2, 2))


def test_what_is_tracked_late_is_not_forgotten(store: Store, alone: RankGroup) -> None:
    """Also when the loop has begun, what a checkpoint does not hold is not taken for restored."""
    saver = _saved_and_resumed(store, alone, model=nn.Linear(2, 2))
    saver.track("model", nn.Linear(2, 2))
    saver.tracked.begin(0)

    with pytest.raises(CheckpointError, match="not 'late'"):
        saver.track("late", nn.Linear(2, 2))


def _optimizer(*parameters: nn.Parameter) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [each]} for each in parameters], lr=0.1)


@pytest.mark.parametrize(
    ("saved", "tracked", "named"),
    [
        (
            nn.Linear(2, 2),
            nn.Linear(2, 3),
            "different are: weight (float32 [2, 2] there, float32 [3, 2] in the code)",
        ),
        (nn.Linear(2, 2), nn.Linear(2, 2, bias=False), "bias"),
        (nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)), "0.weight"),
        (
            _optimizer(nn.Parameter(torch.zeros(1))),
            _optimizer(nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))),
            "parameter groups",
        ),
    ],
)
def test_a_changed_object_does_not_fit(
    store: Store, alone: RankGroup, saved: object, tracked: object, named: str
) -> None:
    """State of another shape is refused, naming the checkpoint, the object and the difference."""
    saver = _saved_and_resumed(store, alone, thing=saved)

    with pytest.raises(CheckpointError, match=r"step-00000003\.a0001 does not fit thing") as caught:
        saver.track("thing", tracked)
    assert named in str(caught.value)


class _Broken:
    """State that can't be had."""

    def state_dict(self) -> dict[str, Any]:
        """Raise."""
        raise ZeroDivisionError("no state today")

    def load_state_dict(self, state_dict: Any) -> None:
        """Do nothing."""


class _Unstorable:
    """State of a type that can't be stored."""

    def state_dict(self) -> dict[str, Any]:
        """What only pickle could store."""
        return {"inner": {"callback": len}}

    def load_state_dict(self, state_dict: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        (
            _Broken(),
            UserCodeError,
            r"state_dict\(\) of thing failed: ZeroDivisionError: no state today",
        ),
        (_Unstorable(), UserCodeError, r"thing\.inner\.callback is a builtin_function"),
    ],
)
def test_a_failed_save_leaves_nothing(
    store: Store, alone: RankGroup, item: object, error: type[Exception], message: str
) -> None:
    """A checkpoint that can't be completed is an error, and no files of it stay."""
    saver = _saver(store, alone)
    saver.track("thing", item)

    with pytest.raises(error, match=message):
        saver.save(_manifest(3))
    assert store.objects(_RUN.checkpoints) == []


def test_old_checkpoints_go(store: Store, alone: RankGroup) -> None:
    """The newest so many stay."""
    saver = _saver(store, alone, keep_last=2)
    saver.track("model", nn.Linear(1, 1))
    for step in (1, 2, 3, 4):
        saver.save(_manifest(step))

    assert [name.step for name in committed(store, _RUN)] == [3, 4]


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """Mount a folder over itself, read-only."""
    mounted = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"not on this platform: {mounted.stderr.strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_what_cannot_be_removed_harms_nothing(store: Store, alone: RankGroup) -> None:
    """
    A checkpoint counts once it is committed, whether or not the old ones can be removed.

    It must not be taken back for that: the run could be left with none at all.
    """
    saver = _saver(store, alone, keep_last=1)
    saver.track("model", nn.Linear(1, 1))
    saver.save(_manifest(1))
    assert store.folder is not None

    with _read_only(store.folder / _RUN.checkpoint(_manifest(1).name)):
        saver.save(_manifest(2))
        assert [name.step for name in committed(store, _RUN)] == [1, 2]

    saver.save(_manifest(3))
    assert [name.step for name in committed(store, _RUN)] == [3]


def test_a_fenced_attempt_saves_nothing(store: Store, alone: RankGroup) -> None:
    """Once a newer attempt is claimed, no checkpoint of the older one is committed any more."""
    saver = _saver(store, alone)
    saver.track("model", nn.Linear(1, 1))
    saver.save(_manifest(1))
    _claim(store, 2, starts_from=str(_manifest(1).name))

    with pytest.raises(FencedError):
        saver.save(_manifest(2))
    assert [name.step for name in committed(store, _RUN)] == [1]


def test_a_failure_of_one_rank_is_one_of_all(ranks: Any, store: Store) -> None:
    """If one rank can't write its part, every rank is told, and nothing is committed."""
    uri, manifest = store.uri, _manifest(3, world_size=3)

    def on_each(group: RankGroup) -> str:
        saver = _Kept(Store(uri), group)
        if group.rank == 0:
            saver.track("thing", _Broken())
        try:
            saver.save(manifest)
        except UserCodeError as error:
            return error.message
        return "nothing"

    assert (
        ranks.run(on_each)
        == ["state_dict() of thing failed: ZeroDivisionError: no state today"] * 3
    )
    assert store.objects(_RUN.checkpoints) == []


def test_every_rank_has_its_own_randomness(ranks: Any, store: Store) -> None:
    """Each rank goes on with its own numbers; one that joins later begins with new ones."""
    uri, manifest = store.uri, _manifest(3, world_size=3)

    def on_each(group: RankGroup) -> list[float]:
        saver = _Kept(Store(uri), group)
        saver.tracked.begin(7)
        torch.rand(2)
        saver.save(manifest)
        numbers: list[float] = torch.rand(3).tolist()
        return numbers

    saved = ranks.run(on_each)

    restored = [_first_numbers(store, rank) for rank in range(4)]
    assert restored[:3] == saved
    assert len({tuple(numbers) for numbers in restored}) == 4


def _first_numbers(store: Store, rank: int) -> list[float]:
    group = RankGroup(
        rank=rank, local_rank=rank, ranks_on_node=1, world_size=1, device=torch.device("cpu")
    )
    _saver(store, group).tracked.begin(7)
    numbers: list[float] = torch.rand(3).tolist()
    return numbers


def test_every_rank_has_its_own_generators(ranks: Any, store: Store) -> None:
    """A tracked generator goes on with the numbers of its own rank."""
    uri, manifest = store.uri, _manifest(3, world_size=3)

    def on_each(group: RankGroup) -> tuple[list[float], list[float]]:
        store = Store(uri)

        def kept(*, resumes: bool) -> tuple[_Kept, torch.Generator]:
            generator = torch.Generator().manual_seed(group.rank)
            made = _Kept(store, group, resumes=resumes)
            made.track("noise", generator)
            return made, generator

        first, generator = kept(resumes=False)
        torch.rand(5, generator=generator)
        first.save(manifest)
        expected: list[float] = torch.rand(2, generator=generator).tolist()
        _, resumed = kept(resumes=True)
        return expected, torch.rand(2, generator=resumed).tolist()

    answers = ranks.run(on_each)
    assert all(expected == found for expected, found in answers)
    assert len({tuple(expected) for expected, _ in answers}) == 3


def _pass(gate: threading.Event) -> None:
    gate.wait(30)


def test_training_goes_on_while_the_state_is_written(store: Store, alone: RankGroup) -> None:
    """What is saved is the state of the moment, whatever happens to it afterwards."""
    gate = threading.Event()
    tracked = _tracked()
    kept = _Kept(store, alone, before_commit=lambda: _pass(gate))
    for name, item in tracked.items():
        kept.track(name, item)
    expected = copy.deepcopy(_states(tracked))
    stall = kept.saver.begin(_manifest(3))
    assert stall.waited_s < 1
    with torch.no_grad():
        for parameter in tracked["model"].parameters():
            parameter.zero_()
    tracked["scheduler"].step()
    torch.rand(3, generator=tracked["generator"])
    assert committed(store, _RUN) == []
    gate.set()
    kept.saver.settle()

    restored = _tracked()
    kept = _Kept(store, alone)
    for name, item in restored.items():
        kept.track(name, item)
    torch.testing.assert_close(_states(restored), expected, rtol=0, atol=0)


def test_a_save_waits_for_the_one_before(store: Store, alone: RankGroup) -> None:
    """One is under way at a time, and how long that has held up training is known."""
    gate = threading.Event()
    kept = _Kept(store, alone, before_commit=lambda: _pass(gate))
    kept.track("model", nn.Linear(1, 1))
    kept.saver.begin(_manifest(1))
    assert kept.saver.is_busy
    threading.Timer(0.2, gate.set).start()
    stall = kept.saver.begin(_manifest(2))
    kept.saver.settle()
    assert stall.waited_s > 0.1
    assert stall.total_s == stall.waited_s + stall.copied_s
    assert [save.manifest.step for save in kept.ended] == [1, 2]
    manifest = read_manifest(store, _RUN, _manifest(2).name)
    assert manifest is not None
    assert manifest.stall_s == stall.total_s


def test_metrics_are_written_before_a_checkpoint_counts(store: Store, alone: RankGroup) -> None:
    """No step that counts lacks its metrics; and without them there is no checkpoint."""
    counted: list[int] = []

    def write_log() -> None:
        counted.append(len(committed(store, _RUN)))
        if len(counted) == 2:
            raise StoreError("no space for metrics")

    kept = _Kept(store, alone, before_commit=write_log)
    kept.track("model", nn.Linear(1, 1))
    for step in (1, 2):
        kept.saver.begin(_manifest(step))
        kept.saver.settle()
    assert counted == [0, 1]
    assert [name.step for name in committed(store, _RUN)] == [1]


def test_a_store_that_fails_is_tried_again(store: Store, alone: RankGroup) -> None:
    """Training goes on after a failure, of which nothing is left, and is told when to try again."""
    now = 1000.0
    kept = _Kept(store, alone, clock=lambda: now)
    kept.track("model", nn.Linear(1, 1))
    blocked = _blocked(store, _manifest(1))
    kept.saver.begin(_manifest(1))
    kept.saver.settle()
    assert isinstance(kept.ended[-1].error, StoreError)
    assert kept.saver.is_failing
    assert not kept.saver.is_retry_due
    now += 10
    assert kept.saver.is_retry_due
    blocked.unlink()
    kept.saver.begin(_manifest(2))
    kept.saver.settle()
    assert kept.ended[-1].error is None
    assert not kept.saver.is_failing
    assert [name.step for name in committed(store, _RUN)] == [2]
    assert store.folders(_RUN.checkpoints) == [str(_manifest(2).name)]


def _blocked(store: Store, manifest: CheckpointManifest) -> Path:
    """Let a file stand where the folder of a checkpoint is to be."""
    assert store.folder is not None
    file = store.folder / _RUN.checkpoint(manifest.name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


def test_training_without_checkpoints_ends(store: Store, alone: RankGroup) -> None:
    """The third failure in a row is raised, as what it is."""
    kept = _Kept(store, alone)
    kept.track("model", nn.Linear(1, 1))
    kept.save(_manifest(1))
    for step in (2, 3, 4):
        _blocked(store, _manifest(step))
    for step in (2, 3):
        kept.saver.begin(_manifest(step))
        kept.saver.settle()
    kept.saver.begin(_manifest(4))
    with pytest.raises(StoreError):
        kept.saver.settle()
    assert [name.step for name in committed(store, _RUN)] == [1]


def test_ranks_agree_on_what_failed(ranks: Any, store: Store) -> None:
    """What one rank can't write is a failure of all, which all take up at the same time."""
    uri, manifests = store.uri, [_manifest(step, world_size=3) for step in (1, 2, 3)]

    def on_each(group: RankGroup) -> list[str]:
        store = Store(uri)
        kept = _Kept(store, group)
        kept.track("model", nn.Linear(4, 4))
        seen = []
        for manifest in manifests:
            if group.rank == 2:
                _blocked(store, manifest)
            group.gather(None)
            try:
                kept.saver.begin(manifest)
                kept.saver.settle()
            except StoreError:
                seen.append("ends")
            else:
                seen.append("goes on")
        return seen

    assert ranks.run(on_each) == [["goes on", "goes on", "ends"]] * 3
    assert committed(store, _RUN) == []


def test_weights_alone_may_be_taken_over(store: Store, alone: RankGroup) -> None:
    """Models are those of the other run; all else begins anew, whatever else was tracked there."""
    saved = _tracked()
    kept = _Kept(store, alone)
    for name, item in saved.items():
        kept.track(name, item)
    kept.save(_manifest(3))
    manifest = read_manifest(store, _RUN, _manifest(3).name)
    assert manifest is not None
    reader = CheckpointReader(store, _RUN.checkpoint(manifest.name), manifest)
    start = Start(manifest=manifest, reader=reader, is_own=False, everything=False)
    assert (start.step, start.position) == (0, 0)

    tracked = Tracked(0, start)
    model = _tracked()["model"]
    nn.init.zeros_(model[0].weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    tracked.begin(5)
    torch.testing.assert_close(model.state_dict(), saved["model"].state_dict(), rtol=0, atol=0)
    assert optimizer.state_dict()["state"] == {}
    with pytest.raises(CheckpointError, match="not 'net'"):
        Tracked(0, start).add("net", nn.Linear(1, 1))


def test_an_optimizer_of_other_parameters_is_found(store: Store, alone: RankGroup) -> None:
    """One that was made before its model's parameters were shared out would train nothing."""
    tracked = _Kept(store, alone).tracked
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    tracked.add("right", torch.optim.SGD(model.parameters(), lr=0.1))
    assert tracked.stray_optimizer([model]) is None
    tracked.add("stray", torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1))
    assert tracked.stray_optimizer([model]) == "stray"
    assert tracked.stray_optimizer([model, other]) is None


class _LostAnswer(Store):
    """A folder that does what it is asked, and once does not answer."""

    lost = ""

    def sync(self, path: str) -> None:
        """Answer, but for once."""
        super().sync(path)
        if self.lost and path.endswith(self.lost):
            self.lost = ""
            raise StoreError("no answer")


def test_what_counts_is_never_written_again(tmp_path: Path, alone: RankGroup) -> None:
    """If only the answer to the commit is lost, the checkpoint is there, and that is success."""
    store = _LostAnswer(str(tmp_path / "runs"))
    _claim(store, 1)
    kept = _Kept(store, alone)
    kept.track("model", nn.Linear(2, 2))
    store.lost = "COMMITTED"
    kept.save(_manifest(1))
    assert store.lost == ""
    assert [save.error for save in kept.ended] == [None]
    assert [name.step for name in committed(store, _RUN)] == [1]


def test_who_leaves_does_not_tidy_up(store: Store, alone: RankGroup) -> None:
    """When machines go away there is no time to remove old checkpoints."""
    kept = _Kept(store, alone, keep_last=1)
    kept.track("model", nn.Linear(1, 1))
    kept.save(_manifest(1))
    kept.save(_manifest(2).model_copy(update={"reason": "preemption"}))
    assert [name.step for name in committed(store, _RUN)] == [1, 2]
    kept.save(_manifest(3))
    assert [name.step for name in committed(store, _RUN)] == [3]


def test_many_saves_keep_nothing(store: Store, alone: RankGroup) -> None:
    """Neither what was saved nor what an error has seen stays in memory."""
    kept = _Kept(store, alone, clock=itertools.count(0.0, 100.0).__next__)
    kept.track("model", nn.Linear(1, 1))
    for step in range(1, 8):
        if step % 2:
            _blocked(store, _manifest(step))
        kept.saver.begin(_manifest(step))
        kept.saver.settle()
    assert kept.saver.ended == 7
    errors = [save.error for save in kept.ended if save.error is not None]
    assert len(errors) == 4
    assert all(error.__cause__ is None or not error.__cause__.__traceback__ for error in errors)
    assert kept.ended[0].outlook == "it is tried again in 5 s (failure 1 of 3)"


def test_parameters_that_are_not_averaged_are_not_shared_work(ranks: Any) -> None:
    """What DDP was told to leave alone may differ on each rank, and so may what follows from it."""

    def on_each(group: RankGroup) -> list[bool]:
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        names = ["0.weight"]
        nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
            model, names
        )
        wrapped = nn.parallel.DistributedDataParallel(model)
        tracked = Tracked(group.rank, None)
        tracked.add("model", wrapped)
        tracked.add("all", torch.optim.SGD(wrapped.parameters(), lr=0.1))
        tracked.add("last", torch.optim.SGD(model[2].parameters(), lr=0.1))
        keys = (
            "model/0.weight",
            "model/0.bias",
            "model/1.running_mean",
            "all/state.0.momentum_buffer",
            "last/state.0.momentum_buffer",
        )
        return [tracked.replicated()(key) for key in keys]

    assert ranks.run(on_each) == [[False, True, False, False, True]] * 3


def test_a_marker_alone_is_no_checkpoint(store: Store, alone: RankGroup) -> None:
    """A store may do what it was asked for when all else of that save is removed already."""
    kept = _Kept(store, alone)
    kept.track("model", nn.Linear(2, 2))
    in_the_way = Path(store.uri, _RUN.checkpoints)
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    in_the_way.write_text("")
    kept.saver.begin(_manifest(1))
    kept.saver.settle()
    assert kept.saver.is_failing

    in_the_way.unlink()
    store.put(f"{_RUN.checkpoint(_manifest(1).name)}/COMMITTED", b"late")
    kept.save(_manifest(1))

    assert kept.ended[-1].error is None
    assert read_checked(store, _RUN.checkpoint(_manifest(1).name)).step == 1


@pytest.mark.cluster
def test_a_bucket_that_refuses_one_rank_is_heard_by_all(
    ranks: Any, s3: S3Server, bucket: str, relay: S3Relay
) -> None:
    """
    Before anything was saved it is a wrong setting, and training ends at once.

    Later somebody has taken the permission away, and may give it back: training goes on, and it is
    tried again.
    """
    uri, endpoint, environment = f"{bucket}/runs", relay.endpoint, dict(s3.environment)
    _claim(Store(uri, endpoint=endpoint), 1)

    def saved(step: int) -> Callable[[RankGroup], str]:
        def on_each(group: RankGroup) -> str:
            os.environ.update(environment)
            kept = _Kept(Store(uri, endpoint=endpoint), group)
            kept.track("model", nn.Linear(4, 4))
            try:
                kept.saver.begin(_manifest(step, world_size=3))
                kept.saver.settle()
            except StoreError:
                return "ends"
            return "is tried again" if kept.saver.is_failing else "is saved"

        return on_each

    def refuse() -> None:
        relay.inject(
            Refusal(403, "AccessDenied"),
            lambda each: each.method == "PUT" and each.key.endswith("rank-00001.bin"),
        )

    refuse()
    assert ranks.run(saved(1)) == ["ends"] * 3
    relay.heal()
    assert ranks.run(saved(2)) == ["is saved"] * 3
    refuse()
    assert ranks.run(saved(3)) == ["is tried again"] * 3
    relay.heal()
    assert ranks.run(saved(4)) == ["is saved"] * 3
