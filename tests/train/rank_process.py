"""One process of a gloo group, which does what it is sent; see the fixture ``ranks``."""

from __future__ import annotations

import pickle
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from footplate.train.group import RankGroup

_TIMEOUT = timedelta(seconds=60)


def main(rank: int, world_size: int, rendezvous: str) -> None:
    """Answer each function that comes with what it returns or raises."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing else may print among them
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=world_size,
        timeout=_TIMEOUT,
    )
    while True:
        try:
            function = pickle.load(sys.stdin.buffer)  # noqa: S301 - our parent's
        except EOFError:
            break
        device = torch.device("cpu")
        group = RankGroup(
            rank=rank,
            local_rank=rank,
            ranks_on_node=world_size,
            world_size=world_size,
            device=device,
        )
        answer: tuple[Any, Exception | None]
        try:
            answer = (function(group), None)
        except Exception as error:  # the parent raises it
            answer = (None, error)
        pickle.dump(answer, answers)
        answers.flush()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
