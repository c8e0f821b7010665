"""The state at one moment, in host memory: the only part of saving that training waits for."""

from __future__ import annotations

import builtins
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor

from footplate.checkpoints.index import Piece, own_prefix, shared_json
from footplate.checkpoints.planning import Held, cut, held_boxes, share_out
from footplate.checkpoints.staging import Source, Stage
from footplate.checkpoints.tree import split
from footplate.errors import CheckpointError, FootplateError

__all__ = ["Snapshot", "Snapshotter"]

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """
    What one rank is to write, in memory of its :class:`Snapshotter`: valid until its next one.

    Attributes:
        rank: Which one.
        shared: The state of all ranks without its tensors, as it is stored; None but on rank 0.
        own: That of this rank alone, without its tensors.
        pieces: What is in memory; their digests are not made yet.
        segments: The memory; one after the other they are the rank's data file.
        copy_s: Seconds that the copy took.
    """

    rank: int
    shared: builtins.bytes | None
    own: Any
    pieces: tuple[Piece, ...]
    segments: tuple[memoryview, ...]
    copy_s: float

    @property
    def bytes(self) -> int:
        """Of the data file."""
        return sum(len(segment) for segment in self.segments)


class Snapshotter:
    """
    Copies the state, and keeps memory and plan from one snapshot to the next.

    There is one set of buffers: a snapshot must be written before the next one is taken.

    Args:
        gather: Gives every rank what each of them has, in rank order.
        device: Where the state is.
    """

    def __init__(
        self,
        gather: Callable[[Any], list[Any]],
        *,
        rank: int,
        world_size: int,
        device: torch.device,
    ) -> None:
        self._gather = gather
        self._rank = rank
        self._stage = Stage(device)
        self._signature: list[Any] | None = None
        self._held: Sequence[Held | None] = [None] * world_size
        self._share: list[Source] = []

    def take(
        self,
        shared: Mapping[str, Any],
        own: Any,
        *,
        replicated: Callable[[str], bool] = lambda _: False,
    ) -> Snapshot:
        """
        Copy this rank's part of the state; afterwards the state may change.

        Every rank calls this at the same time.

        Args:
            shared: What belongs to all ranks: by name, what ``state_dict()`` gave.
            own: What belongs to this rank alone.
            replicated: Whether a tensor, ``<name>/<path>``, is known to be the same on all ranks;
                then these share the work. Of any other that is not sharded rank 0's counts.

        Raises:
            UserCodeError: On every rank, if one has what can't be stored.
            CheckpointError: Likewise, if the ranks do not fit together.
        """
        with _no_collection():
            state = self._agreed(lambda: self._described(shared, own, replicated))
            began = time.perf_counter()
            self._stage.arrange([*self._share, *_whole(state.own_tensors)])
            self._stage.copy({**state.candidates, **state.own_tensors})
            return Snapshot(
                rank=self._rank,
                shared=state.shared,
                own=state.own,
                pieces=self._stage.pieces,
                segments=self._stage.segments,
                copy_s=time.perf_counter() - began,
            )

    def _described(
        self, shared: Mapping[str, Any], own: Any, replicated: Callable[[str], bool]
    ) -> _State:
        trees: dict[str, Any] = {}
        tensors: Tensors = {}
        for name, state in shared.items():
            _check_name(name)
            trees[name], found = split(state, name)
            tensors |= found
        own_tree, own_tensors = split(own, own_prefix(self._rank))
        for name, tensor in own_tensors.items():
            if isinstance(tensor, DTensor):
                raise CheckpointError(f"{name} is sharded; what belongs to one rank can't be")
        candidates = tensors
        if self._rank > 0:
            candidates = {
                name: tensor
                for name, tensor in tensors.items()
                if isinstance(tensor, DTensor) or replicated(name)
            }
        text = shared_json(trees) if self._rank == 0 else None
        return _State(text, tuple(tensors), own_tree, own_tensors, candidates)

    def _agreed(self, describe: Callable[[], _State]) -> _State:
        """Describe the state, and bring the plan up to date where it changed on any rank."""
        outcome: _State | FootplateError
        held = signature = None
        try:
            outcome = describe()
            signature = _signature(outcome.candidates)
            if signature != self._signature:
                names = outcome.names if self._rank == 0 else ()
                held = Held(names, held_boxes(outcome.candidates))
        except FootplateError as error:
            outcome = error
        except Exception as error:  # the others must not wait for this rank in vain
            outcome = CheckpointError(f"the state can't be stored: {error!r}")
        answers = self._gather((outcome if isinstance(outcome, FootplateError) else None, held))
        for refusal, _ in answers:
            if refusal is not None:
                raise refusal
        assert isinstance(outcome, _State)
        if any(new is not None for _, new in answers):
            self._plan([new or old for (_, new), old in zip(answers, self._held, strict=True)])
            self._signature = signature
        return outcome

    def _plan(self, held: Sequence[Held | None]) -> None:
        known = [of_rank for of_rank in held if of_rank is not None]
        share = share_out(known)[self._rank]
        here = {box.tensor: box for box in known[self._rank].boxes}
        self._share = [Source(box, here[box.tensor]) for box in share]
        self._held = held


class _State(NamedTuple):
    """
    The state of one rank, taken apart.

    Attributes:
        names: Of all shared tensors.
        candidates: Shared tensors that this rank could write, all or part of.
    """

    shared: bytes | None
    names: tuple[str, ...]
    own: Any
    own_tensors: Tensors
    candidates: Tensors


@contextmanager
def _no_collection() -> Iterator[None]:
    """
    Let Python look for no garbage meanwhile.

    The many small objects that describe a state would make it look through all that there is,
    which takes longer than the copy; they are gone again when training goes on.
    """
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def _check_name(name: str) -> None:
    """What is shared is never taken for what belongs to a rank."""
    if not name or "/" in name or name.startswith("rank-"):
        raise CheckpointError(f"{name!r} can't be the name of what is stored")


def _signature(tensors: Tensors) -> list[tuple[Any, ...]]:
    """All that the plan depends on."""
    return [
        (name, tensor.dtype, tensor.shape, tensor.device_mesh, tensor.placements)
        if isinstance(tensor, DTensor)
        else (name, tensor.dtype, tensor.shape)
        for name, tensor in tensors.items()
    ]


def _whole(tensors: Tensors) -> list[Source]:
    """All of what one rank has for itself."""
    return [Source(part, box) for box in held_boxes(tensors) for part in cut(box)]
