"""
One of the ranks that save with each arm in turn; rank 0 prints what it saw, as JSON.

Args on the command line: the task, as JSON. All arms work on the same training in the same
processes, one after the other, so that what disturbs one disturbs all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from checkpoint_arms import ALONE, ARMS, Arm, Footplate, memory_copy_s
from checkpoint_model import Training, digest_of, tensors_of


@dataclass(frozen=True, kw_only=True)
class Task:
    """
    What the ranks do.

    Attributes:
        folder: Where they meet and save; in memory.
        megabytes: Of parameters.
        turns: Of each arm.
        steps: Of a training whose whole length is measured.
        saves: In it.
        measures: Methods of the ranks, one after the other.
    """

    folder: str
    rank: int
    world_size: int
    megabytes: int
    turns: int
    steps: int
    saves: int
    measures: Sequence[str]


def main(task: Task) -> None:
    """Measure everything; the first line printed by rank 0 that is JSON is the result."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{task.folder}/rendezvous",
        rank=task.rank,
        world_size=task.world_size,
        timeout=timedelta(minutes=10),
    )
    ranks = _Ranks(task)
    found = {name: [getattr(ranks, name)() for _ in range(task.turns)] for name in task.measures}
    if task.rank == 0:
        print(json.dumps(found), flush=True)
    torch.distributed.barrier()
    # Threads and processes of the arms end with this one.
    os._exit(0)


class _Ranks:
    """What this process has in common with the other ones."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._group = torch.distributed.group.WORLD
        self._training = Training(task.megabytes)
        self._training.step()
        self._step = 1
        self._folder = Path(task.folder)
        self._kept: dict[str, Arm] = {}
        self._buffers = [torch.zeros_like(each) for each in tensors_of(self._training.state())]

    def _arm(self, name: str) -> Arm:
        """Made when it is needed, as each keeps much memory; its first save makes what it keeps."""
        if name not in self._kept:
            folder = self._folder / name.replace(" ", "-")
            self._kept[name] = ARMS[name](folder, group=self._new_group())
            self._saved_and_checked(self._kept[name])
        return self._kept[name]

    def _new_group(self) -> Any:
        return torch.distributed.new_group(backend="gloo")

    def _at_once(self, action: Callable[[], object]) -> float:
        """Seconds that an action takes on the slowest rank; all begin together."""
        torch.distributed.barrier(group=self._group)
        began = time.perf_counter()
        action()
        took = torch.tensor(time.perf_counter() - began, dtype=torch.float64)
        torch.distributed.all_reduce(took, torch.distributed.ReduceOp.MAX, group=self._group)
        return float(took)

    def _next(self) -> int:
        self._training.step()
        self._step += 1
        return self._step

    def _saved_and_checked(self, arm: Arm) -> float:
        """
        The seconds that a save stops training; what comes back is what was there.

        Training goes on while it is written.
        """
        step = self._next()
        before = digest_of(self._training.state())
        stall = self._at_once(lambda: arm.save(self._training, step))
        self._training.step()
        arm.drain()
        torch.distributed.barrier(group=self._group)
        self._training.spoil()
        arm.restore(self._training, step)
        assert digest_of(self._training.state()) == before, f"{arm} restores another state"
        torch.distributed.barrier(group=self._group)
        arm.forget(step)
        return stall

    def stall(self) -> dict[str, float]:
        """Of each arm; and how long the memory copy of what Footplate copies takes."""
        names = [name for name in ARMS if name != ALONE]
        seconds = {name: self._saved_and_checked(self._arm(name)) for name in names}
        ours = self._arm("footplate")
        assert isinstance(ours, Footplate)
        part = ours.staged_bytes / sum(each.nbytes for each in self._buffers)
        copy = self._at_once(lambda: memory_copy_s(self._training, self._buffers))
        return {**seconds, "copy": copy, "copy of a share": copy * part}

    def total(self) -> dict[str, float]:
        """The whole length of a training with some saves, until all are complete."""
        arms = {name: self._arm(name) for name in ("footplate", "torch.save")}
        seconds = {"none": self._at_once(lambda: self._train(None, []))}
        for name, arm in arms.items():
            saved: list[int] = []
            seconds[name] = self._at_once(partial(self._train, arm, saved))
            self._forget(arm, saved)
        return seconds

    def _train(self, arm: Arm | None, saved: list[int]) -> None:
        every = self._task.steps // self._task.saves
        for number in range(1, self._task.steps + 1):
            step = self._next()
            if arm is not None and number % every == 0:
                arm.save(self._training, step)
                saved.append(step)
        if arm is not None:
            arm.drain()

    def _forget(self, arm: Arm, steps: list[int]) -> None:
        """To remove some GB takes a while, for which no arm is to blame."""
        torch.distributed.barrier(group=self._group)
        for step in steps:
            arm.forget(step)

    def fan_out(self) -> dict[str, float]:
        """Until a checkpoint is complete, with nothing else to do: by all ranks, by one."""
        arms = {"all": "footplate", "one": ALONE, "torch.save": "torch.save"}
        seconds = {}
        for name, which in arms.items():
            arm = self._arm(which)
            self._step += 1
            seconds[name] = self._at_once(partial(self._save_whole, arm))
            self._forget(arm, [self._step])
        return seconds

    def _save_whole(self, arm: Arm) -> None:
        arm.save(self._training, self._step)
        arm.drain()

    def restore(self) -> dict[str, float]:
        """Until the state is in place on every rank, verified where that is possible."""
        seconds = {"copy": self._at_once(lambda: memory_copy_s(self._training, self._buffers))}
        for name in ("footplate", "torch.save", "dcp staged"):
            arm = self._arm(name)
            step = self._next()
            before = digest_of(self._training.state())
            arm.save(self._training, step)
            arm.drain()
            torch.distributed.barrier(group=self._group)
            self._training.spoil()
            seconds[name] = self._at_once(partial(arm.restore, self._training, step))
            assert digest_of(self._training.state()) == before
            torch.distributed.barrier(group=self._group)
            arm.forget(step)
        return seconds


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
