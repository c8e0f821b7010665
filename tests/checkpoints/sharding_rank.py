"""
One of some ranks on the loopback interface that save a sharded training; see test_shared_work.

``python sharding_rank.py RANK WORLD_SIZE STORE RENDEZVOUS``: two ranks have shards of every
parameter (FSDP2); of four, two pairs have the same shards (HSDP). Ends with 0 if all is well.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

from footplate.checkpoints import CheckpointFile, CheckpointManifest
from footplate.checkpoints.index import parse_index
from footplate.checkpoints.publish import commit
from footplate.checkpoints.restore import CheckpointReader
from footplate.checkpoints.snapshot import Snapshotter
from footplate.checkpoints.writing import write_snapshot
from footplate.errors import CheckpointError, UserCodeError
from footplate.store import Claim, RunPaths, Store, claim_next

_RUN = RunPaths(namespace="local", name="toy", uid="uid")
_WIDTH = 1200


class _Rank:
    """This process."""

    def __init__(self, rank: int, world_size: int, store: Store) -> None:
        self.rank = rank
        self.world_size = world_size
        self.store = store
        self.snapshotter = Snapshotter(
            self.gather, rank=rank, world_size=world_size, device=torch.device("cpu")
        )

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(values, value)
        return values

    def mesh(self) -> DeviceMesh:
        """Of shards; of more than two ranks also of replicas."""
        if self.world_size == 2:
            return init_device_mesh("cpu", (2,))
        return init_device_mesh("cpu", (self.world_size // 2, 2), mesh_dim_names=("copy", "shard"))


def _whole(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a model or optimizer, each whole and a copy."""
    flat = state.get("state", {"": state})
    return {
        f"{outer}.{name}": tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()
        for outer, values in flat.items()
        for name, tensor in values.items()
    }


def _check_training(here: _Rank) -> None:
    """What is saved while training goes on is the state that was taken, each part once."""
    torch.manual_seed(0)
    # An odd number of rows: the shards are of different sizes, and one of them may be empty.
    model = nn.Sequential(nn.Linear(_WIDTH, _WIDTH + 1), nn.ReLU(), nn.Linear(_WIDTH + 1, 1))
    fully_shard(model, mesh=here.mesh())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step() -> None:
        model(torch.randn(4, _WIDTH)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for number in range(1, 4):
        step()
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        expected = {name: _whole(state) for name, state in states.items()}
        snapshot = here.snapshotter.take(states, {"rank": here.rank})
        manifest = _manifest(number, here.world_size, ())
        with ThreadPoolExecutor(1) as thread:
            writing = thread.submit(write_snapshot, here.store, _RUN, manifest.name, snapshot)
            for _ in range(3):
                step()
        written = tuple(file for files in here.gather(writing.result()) for file in files)
        manifest = manifest.with_files(written)
        if here.rank == 0:
            commit(here.store, _RUN, manifest)
            _check_written(here, manifest)
        torch.distributed.barrier()
        reader = CheckpointReader(here.store, _RUN.checkpoint(manifest.name), manifest)
        for name, tensors in expected.items():
            back = _whole(reader.load(name))
            assert back.keys() == tensors.keys()
            assert all(torch.equal(back[key], tensor) for key, tensor in tensors.items()), name
        assert reader.own(here.rank) == {"rank": here.rank}


def _check_written(here: _Rank, manifest: CheckpointManifest) -> None:
    """Every box is there once, and no rank has written much more than another."""
    folder = _RUN.checkpoint(manifest.name)
    indexes = [
        parse_index(here.store.get(f"{folder}/rank-{rank:05d}.json"))
        for rank in range(here.world_size)
    ]
    boxes = [(piece.tensor, piece.offsets) for index in indexes for piece in index.pieces]
    assert len(boxes) == len(set(boxes))
    parameters = (_WIDTH + 1) * (_WIDTH + 1) + _WIDTH + 2
    total = sum(index.size for index in indexes)
    assert 0 <= total - 3 * 4 * parameters < 10_000, total
    assert max(index.size for index in indexes) < 1.3 * total / here.world_size


def _check_layouts(here: _Rank) -> None:
    """Other layouts of one tensor are put together again; partial sums are refused on all."""
    mesh = init_device_mesh("cpu", (here.world_size,))
    whole = torch.arange(7 * 5 * 3.0).reshape(7, 5, 3)
    state = {
        f"along {dimension}": distribute_tensor(whole, mesh, [Shard(dimension)])
        for dimension in range(3)
    }
    snapshot = here.snapshotter.take({"model": state}, {})
    manifest = _manifest(9, here.world_size, ())
    written = here.gather(write_snapshot(here.store, _RUN, manifest.name, snapshot))
    manifest = manifest.with_files(tuple(file for of_rank in written for file in of_rank))
    if here.rank == 0:
        commit(here.store, _RUN, manifest)
    torch.distributed.barrier()
    back = CheckpointReader(here.store, _RUN.checkpoint(manifest.name), manifest).load("model")
    assert all(torch.equal(tensor, whole) for tensor in back.values())
    partial = DTensor.from_local(torch.ones(3), mesh, [Partial()])
    first = state["along 0"]
    _check_refused(here, {"x": partial}, {}, "model.x is a DTensor of partial sums")
    _check_refused(here, {"x": first, "y": print if here.rank else 1}, {}, "model.y is a builtin")
    _check_refused(here, {}, {"x": first if here.rank else 1}, "rank-00001/x is sharded")


def _check_refused(here: _Rank, model: Any, own: Any, why: str) -> None:
    with pytest.raises((CheckpointError, UserCodeError), match=why):
        here.snapshotter.take({"model": model}, own)


def _manifest(step: int, world_size: int, files: tuple[CheckpointFile, ...]) -> CheckpointManifest:
    return CheckpointManifest(
        step=step,
        position=0,
        epoch=0,
        attempt=1,
        world_size=world_size,
        written=0.0,
        files=files,
    )


def main(rank: int, world_size: int, store: Store, rendezvous: str) -> None:
    """Save and compare."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    here = _Rank(rank, world_size, store)
    if rank == 0:
        claim = Claim(attempt=1, token="t", host="", pid=1, claimed=1.0, spec={})  # noqa: S106
        claim_next(store, _RUN, claim)
    _check_training(here)
    _check_layouts(here)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Store(sys.argv[3]), sys.argv[4])
