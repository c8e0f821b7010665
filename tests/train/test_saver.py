"""What is tracked is saved and comes back; what can't be is refused by name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from footplate.checkpoints import CheckpointManifest, committed, find_resume_point
from footplate.errors import CheckpointError, FencedError, UserCodeError
from footplate.store import Claim, RunPaths, Store, claim_next, read_claims
from footplate.train.group import RankGroup
from footplate.train.saver import Saver

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


def _saver(store: Store, group: RankGroup, *, attempt: int = 1, keep_last: int = 2) -> Saver:
    """A saver that goes on from the newest checkpoint."""
    resume, _ = find_resume_point(store, _RUN, read_claims(store, _RUN))
    return Saver(
        store,
        _RUN,
        group,
        attempt=attempt,
        resume=resume,
        keep_last=keep_last,
        before_commit=lambda: None,
    )


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


def _saved_and_resumed(store: Store, group: RankGroup, **tracked: Any) -> Saver:
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
        resumed.restore_randomness(0)


def test_a_new_name_is_not_in_the_checkpoint(store: Store, alone: RankGroup) -> None:
    """Code that tracks more than was saved learns what was saved."""
    saver = _saved_and_resumed(store, alone, model=nn.Linear(2, 2))

    with pytest.raises(CheckpointError, match=r"step-00000003\.a0001 holds \['model'\], not 'net'"):
        saver.track("net", nn.Linear(2, 2))


def _optimizer(*parameters: nn.Parameter) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [each]} for each in parameters], lr=0.1)


@pytest.mark.parametrize(
    ("saved", "tracked", "named"),
    [
        (nn.Linear(2, 2), nn.Linear(2, 3), "size mismatch for weight"),
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
        return {"inner": {"callback": print}}

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
        (_Unstorable(), CheckpointError, r"thing\.inner\.callback is a builtin_function"),
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
    uri, run, manifest = store.uri, _RUN, _manifest(3, world_size=3)

    def on_each(group: RankGroup) -> str:
        store = Store(uri)
        saver = Saver(
            store,
            run,
            group,
            attempt=1,
            resume=None,
            keep_last=2,
            before_commit=lambda: None,
        )
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
    uri, run, manifest = store.uri, _RUN, _manifest(3, world_size=3)

    def on_each(group: RankGroup) -> list[float]:
        saver = Saver(
            Store(uri),
            run,
            group,
            attempt=1,
            resume=None,
            keep_last=2,
            before_commit=lambda: None,
        )
        saver.restore_randomness(7)
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
    _saver(store, group).restore_randomness(7)
    numbers: list[float] = torch.rand(3).tolist()
    return numbers


def test_every_rank_has_its_own_generators(ranks: Any, store: Store) -> None:
    """A tracked generator goes on with the numbers of its own rank."""
    uri, run, manifest = store.uri, _RUN, _manifest(3, world_size=3)

    def on_each(group: RankGroup) -> tuple[list[float], list[float]]:
        store = Store(uri)

        def saver(resume: CheckpointManifest | None) -> tuple[Saver, torch.Generator]:
            generator = torch.Generator().manual_seed(group.rank)
            made = Saver(
                store,
                run,
                group,
                attempt=1,
                resume=resume,
                keep_last=2,
                before_commit=lambda: None,
            )
            made.track("noise", generator)
            return made, generator

        first, generator = saver(None)
        torch.rand(5, generator=generator)
        first.save(manifest)
        expected: list[float] = torch.rand(2, generator=generator).tolist()
        resume, _ = find_resume_point(store, run, read_claims(store, run))
        _, resumed = saver(resume)
        return expected, torch.rand(2, generator=resumed).tolist()

    answers = ranks.run(on_each)
    assert all(expected == found for expected, found in answers)
    assert len({tuple(expected) for expected, _ in answers}) == 3
