"""
One of four ranks on the loopback interface that hand a training on from layout to layout.

``python resharding_rank.py RANK STORE RENDEZVOUS``: one rank saves; two ranks with shares of every
parameter (FSDP2) go on, then four, then two that have all of it each, then one. Each compares
what it got, to the bit; and in each layout a hundred steps from there have the same losses: of one
rank to the bit, of several but for the order in which numbers are added. Ends with 0 if all is
well.
"""

from __future__ import annotations

import math
import statistics
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.distributed
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from footplate.checkpoints import CheckpointFile, CheckpointManifest, read_manifest
from footplate.checkpoints.export import export_safetensors
from footplate.checkpoints.integrity import verify
from footplate.checkpoints.publish import commit
from footplate.checkpoints.restore import CheckpointReader
from footplate.checkpoints.snapshot import Snapshotter
from footplate.checkpoints.templates import restore_into
from footplate.checkpoints.writing import write_snapshot
from footplate.store import RunPaths, Store

_RANKS = 4
_STEPS = 100
_BATCH = 8
_TOLERANCE = 1e-5
_RUN = RunPaths(namespace="local", name="toy", uid="uid")


class _Net(nn.Module):
    """Parameters of all kinds of shapes: few rows, odd numbers of them, one number, a buffer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(37, 11)
        self.norm = nn.LayerNorm(11)
        self.few = nn.Linear(11, 2)
        self.scale = nn.Parameter(torch.rand(1))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.tensor([seed]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.few(self.norm(self.first(x))) * self.scale
        return y


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.01)


def _full(value: Any) -> Any:
    """A state with every tensor whole and in memory of its own."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _full(item) for key, item in value.items()}
    return [_full(item) for item in value] if isinstance(value, list) else value


def _assert_same(one: Any, other: Any, where: str = "") -> None:
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, where
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), (where, one.keys(), other.keys())
        for key, item in one.items():
            _assert_same(item, other[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for number, (item, its) in enumerate(zip(one, other, strict=True)):
            _assert_same(item, its, f"{where}[{number}]")
    else:
        assert one == other, where


class _Stage:
    """The first so many ranks, in one layout."""

    def __init__(self, store: Store, rank: int, world_size: int, *, shards: bool) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._shards = shards
        members = list(range(world_size))
        self._group: Any = torch.distributed.new_group(members, backend="gloo")
        self._mesh = DeviceMesh("cpu", members) if shards else None

    @property
    def is_mine(self) -> bool:
        """Whether this process is one of them."""
        return self._rank < self._world_size

    @property
    def tolerance(self) -> float:
        """Of its losses; one rank adds in the order in which it did when nothing was saved."""
        return 0.0 if self._world_size == 1 else _TOLERANCE

    def made(self, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        """A model and its optimizer, in this layout."""
        model = _Net(seed)
        if self._mesh is not None:
            fully_shard(model.first, mesh=self._mesh)
            fully_shard(model, mesh=self._mesh)
        return model, _optimizer(model)

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Save by what trains."""
        snapshotter = Snapshotter(
            self._gather, rank=self._rank, world_size=self._world_size, device=torch.device("cpu")
        )
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        snapshot = snapshotter.take(states, {"rank": self._rank}, replicated=lambda _: True)
        name = _manifest(step, self._world_size, ()).name
        written = self._gather(write_snapshot(self._store, _RUN, name, snapshot))
        if self._rank == 0:
            files = tuple(file for of_rank in written for file in of_rank)
            commit(self._store, _RUN, _manifest(step, self._world_size, files))
        torch.distributed.barrier(group=self._group)

    def restored(self, step: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Another model, that goes on from what was saved."""
        model, optimizer = self.made(seed=100 + step)
        reader = _reader(self._store, step)
        restore_into(reader, "model", model)
        restore_into(reader, "optimizer", optimizer)
        own = reader.own(self._rank)
        assert own in ({"rank": self._rank}, None)
        return model, optimizer

    def losses(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        """Those of all samples of each step, which the ranks share out among them."""
        is_whole = self._mesh is None and self._world_size > 1
        model = DistributedDataParallel(model, process_group=self._group) if is_whole else model
        generator = torch.Generator().manual_seed(1)
        mine = slice(self._rank, None, self._world_size)
        losses = []
        for _ in range(_STEPS):
            x = torch.randn(_BATCH, 37, generator=generator)
            y = torch.randn(_BATCH, 2, generator=generator)
            loss = (model(x[mine]) - y[mine]).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(statistics.fmean(self._gather(float(loss.detach()))))
        return losses

    def _gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self._world_size
        torch.distributed.all_gather_object(values, value, group=self._group)
        return values


def _manifest(step: int, world_size: int, files: tuple[CheckpointFile, ...]) -> CheckpointManifest:
    return CheckpointManifest(
        format=2,
        step=step,
        position=0,
        epoch=0,
        attempt=1,
        world_size=world_size,
        written=0.0,
        files=files,
    )


def _reader(store: Store, step: int) -> CheckpointReader:
    manifest = read_manifest(store, _RUN, _manifest(step, 1, ()).name)
    assert manifest is not None
    return CheckpointReader(store, _RUN.checkpoint(manifest.name), manifest)


def _train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(1)
    for _ in range(3):
        model(torch.randn(8, 37)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def _read_bytes(store: Store, step: int, model: nn.Module) -> int:
    """How much a rank reads for its part of a model."""
    told: list[int] = []
    state = model.state_dict()
    _reader(store, step).load("model", state, progress=told.append)
    return sum(told)


def main(rank: int, store: Store, rendezvous: str) -> None:
    """Hand on."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=_RANKS,
        timeout=timedelta(seconds=60),
    )
    layouts = [(1, False), (2, True), (4, True), (4, True), (2, False), (1, False)]
    stages = [_Stage(store, rank, count, shards=shards) for count, shards in layouts]
    model, optimizer = stages[0].made(seed=0)
    _train(model, optimizer)  # the same on every rank, so that each knows what to expect
    expected = _full([model.state_dict(), optimizer.state_dict()])
    if stages[0].is_mine:
        stages[0].save(model, optimizer, 1)
        uninterrupted = stages[0].losses(model, optimizer)
    whole = sum(t.numel() * t.itemsize for t in expected[0].values())
    for step, stage in enumerate(stages[1:], start=1):
        torch.distributed.barrier()
        if not stage.is_mine:
            continue
        model, optimizer = stage.restored(step)
        if step == 3:  # from four to four: each rank reads what it had written, and little more
            assert _read_bytes(store, step, model) <= whole / 2, whole
        _assert_same(_full([model.state_dict(), optimizer.state_dict()]), expected)
        stage.save(model, optimizer, step + 1)
    torch.distributed.barrier()
    if rank == 0:
        _check_files(store, len(stages), expected[0], Path(rendezvous).with_suffix(".safetensors"))
    losses = _losses_of_each(stages)
    if rank == 0:
        _check_training_goes_on(stages, losses, uninterrupted)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _check_files(store: Store, steps: int, expected: dict[str, Any], out: Path) -> None:
    """Whoever wrote them, they are verified and exported alike."""
    for step in range(1, steps + 1):
        assert verify(store, _RUN, _manifest(step, 1, ()).name) == []
        export_safetensors(_reader(store, step), "model", out)
        _assert_same(safetensors.torch.load_file(out), expected)


def _losses_of_each(stages: list[_Stage]) -> list[list[float]]:
    """From what the stages have handed on, in the layout of each."""
    losses = []
    for step, stage in enumerate(stages, start=1):
        torch.distributed.barrier()
        if stage.is_mine:
            losses.append(stage.losses(*stage.restored(step)))
    return losses


def _check_training_goes_on(
    stages: list[_Stage], of_stages: list[list[float]], uninterrupted: list[float]
) -> None:
    """Whatever the layout, what was handed on trains as what was never saved."""
    for number, (stage, losses) in enumerate(zip(stages, of_stages, strict=True)):
        for step, (loss, its) in enumerate(zip(losses, uninterrupted, strict=True)):
            where = (number, step, loss, its)
            assert math.isclose(loss, its, rel_tol=stage.tolerance, abs_tol=0.0), where


if __name__ == "__main__":
    main(int(sys.argv[1]), Store(sys.argv[2]), sys.argv[3])
