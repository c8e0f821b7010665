"""
The ranks as a group: what they tell each other besides gradients.

Control traffic goes over gloo on the CPU whatever carries the gradients, so it never waits for a
GPU. With one rank nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed

from footplate.errors import FootplateError, TrainingError

__all__ = ["RankGroup"]

T = TypeVar("T")
# Longer than the slowest upload of a checkpoint that others wait for.
_TIMEOUT = timedelta(hours=2)


class RankGroup:
    """
    This process among all ranks.

    Args:
        rank: From 0.
        local_rank: Among the ranks of the same node.
        ranks_on_node: How many those are.
        world_size: Ranks of the run.
        device: Where this rank computes.
    """

    def __init__(
        self,
        *,
        rank: int,
        local_rank: int,
        ranks_on_node: int,
        world_size: int,
        device: torch.device,
    ) -> None:
        self.rank = rank
        self.local_rank = local_rank
        self.ranks_on_node = ranks_on_node
        self.world_size = world_size
        self.device = device
        # torch annotates what non-members get, too; every rank is a member of this group.
        self._control: Any = (
            torch.distributed.new_group(backend="gloo", timeout=_TIMEOUT)
            if world_size > 1
            else None
        )

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which speaks for all."""
        return self.rank == 0

    def twin(self) -> RankGroup:
        """
        The same ranks over connections of their own, for another thread; all ranks call this.

        Two threads that shared connections would take each other's messages.
        """
        return RankGroup(
            rank=self.rank,
            local_rank=self.local_rank,
            ranks_on_node=self.ranks_on_node,
            world_size=self.world_size,
            device=self.device,
        )

    def gather(self, value: T) -> list[T]:
        """What every rank has, in rank order, on every rank."""
        if self._control is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(values, value, group=self._control)
        return values

    def agree(self, action: Callable[[], T]) -> list[T]:
        """
        Do something on every rank; if it fails on one, it fails on all.

        Returns:
            The results in rank order.

        Raises:
            FootplateError: The error of the lowest rank that failed.
        """
        error: FootplateError | None = None
        result: list[T] = []
        try:
            result = [action()]
        except FootplateError as failure:
            error = failure
        except Exception as failure:  # the others must not wait for this rank in vain
            error = TrainingError(f"rank {self.rank}: {type(failure).__name__}: {failure}")
        outcomes = self.gather((result, error))
        for _, failed in outcomes:
            if failed is not None:
                raise failed
        return [value for results, _ in outcomes for value in results]

    def agree_on_first(self, action: Callable[[], T]) -> T | None:
        """Do something on rank 0 alone; if it fails there, it fails on all."""
        return self.agree(lambda: action() if self.is_first else None)[0]
