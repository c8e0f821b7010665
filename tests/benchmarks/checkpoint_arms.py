"""The ways to save that are compared, each as good as it gets; see :mod:`checkpoint_ranks`."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save

from checkpoint_model import Training, tensors_of
from footplate.checkpoints import CheckpointManifest, read_manifest
from footplate.checkpoints.publish import commit
from footplate.checkpoints.restore import CheckpointReader
from footplate.checkpoints.snapshot import Snapshot, Snapshotter
from footplate.checkpoints.templates import restore_into
from footplate.checkpoints.writing import write_snapshot
from footplate.store import CheckpointName, Claim, RunPaths, Store, claim_next

__all__ = ["ALONE", "ARMS", "Arm", "Footplate", "memory_copy_s"]

_RUN = RunPaths(namespace="local", name="benchmark", uid="uid")


class Arm(Protocol):
    """One way to save and to restore, on every rank."""

    def save(self, training: Training, step: int) -> None:
        """Save; returns when training may go on. An earlier save may still be running."""

    def drain(self) -> None:
        """Wait until what was saved is complete in its folder."""

    def restore(self, training: Training, step: int) -> None:
        """Overwrite the state of the training with what was saved at a step."""

    def forget(self, step: int) -> None:
        """Remove a checkpoint, so that memory holds the next ones."""


class Footplate:
    """
    What :class:`~footplate.train.Context` does at a save: a copy, and a thread for the rest.

    Args:
        group: Of gloo, of the ranks that save.
        alone: Whether rank 0 writes all of it.
    """

    def __init__(self, folder: Path, *, group: Any, alone: bool = False) -> None:
        self._store = Store(str(folder))
        self._rank = torch.distributed.get_rank()
        self._alone = alone
        self._writes = self._rank == 0 or not alone
        self._world_size = 1 if alone else torch.distributed.get_world_size()
        self._in_thread = self._gather_over(torch.distributed.new_group(backend="gloo"))
        self._snapshotter = Snapshotter(
            self._gather_over(group),
            rank=self._rank,
            world_size=self._world_size,
            device=torch.device("cpu"),
        )
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.staged_bytes = 0
        if self._rank == 0:
            claim = Claim(attempt=1, token="", host="", pid=1, claimed=time.time(), spec={})
            claim_next(self._store, _RUN, claim)

    def _gather_over(self, group: Any) -> Callable[[Any], list[Any]]:
        def gather(value: Any) -> list[Any]:
            if self._alone:
                return [value]
            values: list[Any] = [None] * self._world_size
            torch.distributed.all_gather_object(values, value, group=group)
            return values

        return gather

    def save(self, training: Training, step: int) -> None:
        """Copy; the rest goes on in a thread."""
        self.drain()
        if not self._writes:
            return
        snapshot = self._snapshotter.take(training.state(), {}, replicated=lambda _: True)
        self.staged_bytes = snapshot.bytes
        self._thread = threading.Thread(target=self._publish, args=(snapshot, step))
        self._thread.start()

    def _publish(self, snapshot: Snapshot, step: int) -> None:
        try:
            files = write_snapshot(self._store, _RUN, CheckpointName(step, 1), snapshot)
            gathered = self._in_thread(files)
            if self._rank == 0:
                commit(self._store, _RUN, _manifest(step, self._world_size, gathered))
            self._in_thread(None)
        except BaseException as error:
            self._failure = error
            raise

    def drain(self) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def restore(self, training: Training, step: int) -> None:
        """Read into the tensors that are there, verified."""
        name = CheckpointName(step, 1)
        manifest = read_manifest(self._store, _RUN, name)
        assert manifest is not None
        reader = CheckpointReader(self._store, _RUN.checkpoint(name), manifest)
        restore_into(reader, "model", training.module)
        restore_into(reader, "optimizer", training.optimizer)

    def forget(self, step: int) -> None:
        """Remove the folder."""
        if self._rank == 0:
            assert self._store.folder is not None
            shutil.rmtree(self._store.folder / _RUN.checkpoint(CheckpointName(step, 1)))


def _manifest(step: int, world_size: int, files: list[Any]) -> CheckpointManifest:
    return CheckpointManifest(
        step=step,
        position=step,
        epoch=0,
        attempt=1,
        world_size=world_size,
        written=time.time(),
        files=tuple(file for of_rank in files for file in of_rank),
    )


class TorchSave:
    """Rank 0 writes everything by ``torch.save``; the others wait for it."""

    def __init__(self, folder: Path, *, group: Any) -> None:
        self._folder = folder
        self._group = group
        folder.mkdir(parents=True, exist_ok=True)

    def _file(self, step: int) -> Path:
        return self._folder / f"{step:08d}.pt"

    def save(self, training: Training, step: int) -> None:
        """Write, and wait."""
        if torch.distributed.get_rank() == 0:
            begun = self._file(step).with_suffix(".begun")
            torch.save(training.state(), begun)
            begun.rename(self._file(step))
        torch.distributed.barrier(group=self._group)

    def drain(self) -> None:
        """Nothing is left to do."""

    def restore(self, training: Training, step: int) -> None:
        """Every rank reads the file, mapped into memory."""
        training.load(torch.load(self._file(step), mmap=True, weights_only=True))

    def forget(self, step: int) -> None:
        """Remove the file."""
        if torch.distributed.get_rank() == 0:
            self._file(step).unlink()


class Distributed:
    """
    ``torch.distributed.checkpoint`` in one of its asynchronous ways.

    Args:
        kind: ``thread`` as it comes; ``staged`` into shared memory that is kept, the copy being
            complete when the call returns; ``process``, which writes in a process of its own.
    """

    def __init__(self, folder: Path, *, group: Any, kind: str) -> None:
        self._folder = folder
        self._group = group
        self._kind = kind
        self._stager = DefaultStager(_KEPT) if kind == "staged" else None
        self._future: Future[Any] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, training: Training, step: int) -> None:
        """Stage; the rest goes on in a thread or a process."""
        self.drain()
        process = self._kind == "process"
        begun: Any = async_save(
            training.state(),
            checkpoint_id=self._folder / f"{step:08d}",
            process_group=self._group,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS
            if process
            else AsyncCheckpointerType.THREAD,
            async_stager=self._stager,
        )
        if hasattr(begun, "staging_completion"):
            begun.staging_completion.result()  # what it has not copied yet may not change
            begun = begun.upload_completion
        self._future = begun

    def drain(self) -> None:
        """Wait for the thread or process."""
        if self._future is not None:
            self._future.result()
            self._future = None

    def restore(self, training: Training, step: int) -> None:
        """Read into the tensors that are there."""
        state = training.state()
        load(state, checkpoint_id=self._folder / f"{step:08d}", process_group=self._group)
        training.load(state)

    def forget(self, step: int) -> None:
        """Remove the folder."""
        if torch.distributed.get_rank() == 0:
            shutil.rmtree(self._folder / f"{step:08d}")


_KEPT = StagingOptions(
    use_pinned_memory=False,
    use_shared_memory=True,
    use_async_staging=False,
    use_non_blocking_copy=False,
)


ALONE = "footplate alone"
"""The arm that shows what it is worth that ranks share the work."""

ARMS: dict[str, Callable[..., Arm]] = {
    "footplate": Footplate,
    ALONE: lambda folder, group: Footplate(folder, group=group, alone=True),
    "torch.save": TorchSave,
    "dcp thread": lambda folder, group: Distributed(folder, group=group, kind="thread"),
    "dcp staged": lambda folder, group: Distributed(folder, group=group, kind="staged"),
    "dcp process": lambda folder, group: Distributed(folder, group=group, kind="process"),
}


def memory_copy_s(training: Training, buffers: list[torch.Tensor]) -> float:
    """How long a copy of the whole state takes, into memory that was touched before."""
    sources = tensors_of(training.state())
    began = time.perf_counter()
    for source, buffer in zip(sources, buffers, strict=True):
        buffer.copy_(source)
    return time.perf_counter() - began
