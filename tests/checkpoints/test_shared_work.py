"""Several ranks that save one state: each its part, all or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from footplate.checkpoints import CheckpointManifest
from footplate.checkpoints.publish import commit
from footplate.checkpoints.restore import CheckpointReader
from footplate.checkpoints.snapshot import Snapshot, Snapshotter
from footplate.checkpoints.writing import write_snapshot
from footplate.errors import CheckpointError, FootplateError
from footplate.store import CheckpointName, Claim, RunPaths, Store, claim_next
from rank_threads import RankThreads

RUN = RunPaths(namespace="local", name="digits", uid="uid-1")
NAME = CheckpointName(7, 1)
_RANK = Path(__file__).with_name("sharding_rank.py")


class _Ranks:
    """Snapshotters of ranks that are threads."""

    def __init__(self, count: int) -> None:
        self._threads = RankThreads(count)
        self._snapshotters = [
            Snapshotter(
                self._threads.gather_of(rank),
                rank=rank,
                world_size=count,
                device=torch.device("cpu"),
            )
            for rank in range(count)
        ]

    def take(
        self,
        shared: Callable[[int], dict[str, Any]],
        replicated: Callable[[str], bool] = lambda _: True,
    ) -> list[Snapshot | FootplateError]:
        """What each rank gets, for what each of them has."""

        def take(rank: int) -> Snapshot | FootplateError:
            own = {"rank": rank}
            try:
                return self._snapshotters[rank].take(shared(rank), own, replicated=replicated)
            except FootplateError as error:
                return error

        return self._threads.run(take)


def _bytes(snapshots: list[Snapshot | FootplateError]) -> list[int]:
    assert all(isinstance(snapshot, Snapshot) for snapshot in snapshots), snapshots
    return [snapshot.bytes for snapshot in snapshots if isinstance(snapshot, Snapshot)]


def _loaded(store: Store, snapshots: list[Snapshot | FootplateError], name: str) -> Any:
    """What is read of the checkpoint that the snapshots make."""
    claim = Claim(attempt=1, token="t", host="", pid=1, claimed=1.0, spec={})  # noqa: S106
    claim_next(store, RUN, claim)
    written = [write_snapshot(store, RUN, NAME, each) for each in snapshots]  # type: ignore[arg-type]
    manifest = CheckpointManifest(
        step=7,
        position=0,
        epoch=0,
        attempt=1,
        world_size=len(snapshots),
        written=1.0,
        files=tuple(file for files in written for file in files),
    )
    commit(store, RUN, manifest)
    return CheckpointReader(store, RUN.checkpoint(NAME), manifest).load(name)


def test_what_is_the_same_on_all_ranks_is_written_by_all(tmp_path: Path) -> None:
    """In parts of equal size, also of one large tensor; each is written once."""
    small, large = [torch.randn(1000) for _ in range(30)], torch.randn(3000, 1000)
    state = {"small": small, "large": large}
    snapshots = _Ranks(3).take(lambda _: {"model": state})
    sizes = _bytes(snapshots)
    assert max(sizes) < 1.1 * min(sizes)
    assert sum(sizes) < 1.01 * 4 * 3_030_000
    back = _loaded(Store(str(tmp_path)), snapshots, "model")
    assert torch.equal(back["large"], large)
    assert all(map(torch.equal, back["small"], small))


def test_what_may_differ_between_ranks_is_that_of_rank_0(tmp_path: Path) -> None:
    """Statistics of a batch are each rank's own: of several ranks they would be nobody's."""
    states = [
        {"weight": torch.ones(1000, 1000), "mean": torch.full((1000, 1000), float(rank))}
        for rank in range(2)
    ]
    snapshots = _Ranks(2).take(
        lambda rank: {"model": states[rank], "other": {"x": torch.full((9,), float(rank))}},
        replicated=lambda name: name == "model/weight",
    )
    sizes = _bytes(snapshots)
    assert sizes[1] == 4_000_000
    back = _loaded(Store(str(tmp_path)), snapshots, "model")
    assert torch.equal(back["mean"], torch.zeros(1000, 1000))
    assert torch.equal(back["weight"], torch.ones(1000, 1000))


def test_only_rank_0_needs_to_have_what_is_taken_of_it() -> None:
    """What others have in its place, or besides, does not matter."""
    history = [torch.randn(5), torch.randn(8)]
    ranks = _Ranks(2)
    for count in (0, 2, 1):
        states = [{"log": history[:count]}, {"log": history[: count + 1]}]
        snapshots = ranks.take(states.__getitem__, replicated=lambda _: False)
        assert _bytes(snapshots) == [64 * count, 0]


def test_what_one_rank_can_not_store_is_refused_on_all() -> None:
    """With the same error, and no rank waits for another; afterwards all goes on."""
    ranks = _Ranks(3)
    good = {"weight": torch.ones(10)}
    _bytes(ranks.take(lambda _: {"model": good}))
    bad = {**good, "callback": print}
    snapshots = ranks.take(lambda rank: {"model": bad if rank == 1 else good})
    messages = {str(error).partition("\n")[0] for error in snapshots}
    assert messages == {"model.callback is a builtin_function_or_method, which can't be stored"}
    assert sum(_bytes(ranks.take(lambda _: {"model": good}))) == 64


def test_ranks_that_disagree_are_all_told() -> None:
    """Whichever of them has changed; afterwards all goes on."""
    ranks = _Ranks(3)
    states = [{"weight": torch.ones(10)}, {"weight": torch.ones(11)}, {"bias": torch.ones(10)}]
    _bytes(ranks.take(lambda _: {"model": states[0]}))
    for other in states[1:]:
        of_ranks = [{"model": states[0]}, {"model": other}, {"model": other}]
        snapshots = ranks.take(of_ranks.__getitem__)
        assert {type(each) for each in snapshots} == {CheckpointError}
        assert "the ranks do not have the same state: model/" in str(snapshots[0])
    assert sum(_bytes(ranks.take(lambda _: {"model": states[0]}))) == 64


def test_all_ranks_follow_when_the_state_of_all_changes() -> None:
    """The plan is made anew on each of them."""
    ranks = _Ranks(2)
    for count in (3, 10, 1):
        state = {"model": [torch.randn(1 << 20) for _ in range(count)]}
        sizes = _bytes(ranks.take([state, state].__getitem__))
        assert sum(sizes) == count << 22
        assert max(sizes) - min(sizes) <= max(count << 18, 1 << 20)


@pytest.mark.parametrize("world_size", [2, 4])
def test_sharded_state_is_written_once_by_who_has_it(
    check_ranks: Callable[..., None], tmp_path: Path, world_size: int
) -> None:
    """Real ranks with FSDP2, two of them; with replicas of the shards, four. See the script."""
    check_ranks(_RANK, world_size, str(world_size), str(tmp_path / "store"), f"{tmp_path}/meet")
