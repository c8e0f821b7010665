"""The arm that ``torchrun`` starts, and starts again when a rank dies."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from goodput_loop import StepLog, make_training, train_step


def main(folder: str, every: int) -> None:
    """Train until the end of the benchmark; save every so many steps."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    module, batch = make_training()
    model = DistributedDataParallel(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5)
    newest, step = Path(folder) / "newest.pt", 0
    if newest.exists():
        state = torch.load(newest, weights_only=True, mmap=True)
        module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    log = StepLog(folder, rank)
    while True:
        train_step(model, optimizer, batch)
        step += 1
        log.done(step)
        if step % every == 0:
            began = time.perf_counter()
            if rank == 0:
                state = {"step": step, "model": module.state_dict()}
                begun = newest.with_suffix(".begun")
                torch.save({**state, "optimizer": optimizer.state_dict()}, begun)
                begun.replace(newest)
            torch.distributed.barrier()
            log.saved(step, time.perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
