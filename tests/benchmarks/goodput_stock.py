"""The arm of a ``TorchTrainer`` as Ray gives it, with as many restarts as it takes."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

from goodput_loop import StepLog, make_training, train_step


def train(config: dict[str, Any]) -> None:
    """Train until the end of the benchmark; save every so many steps."""
    rank = ray.train.get_context().get_world_rank()
    module, batch = make_training()
    model = prepare_model(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5)
    step = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as place:
            state = torch.load(Path(place) / "state.pt", weights_only=True, mmap=True)
            module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            step = state["step"]
    log = StepLog(config["folder"], rank)
    while True:
        train_step(model, optimizer, batch)
        step += 1
        log.done(step)
        if step % config["every"] == 0:
            began = time.perf_counter()
            with tempfile.TemporaryDirectory(dir=config["folder"]) as place:
                if rank == 0:
                    state = {"step": step, "model": module.state_dict()}
                    torch.save(
                        {**state, "optimizer": optimizer.state_dict()}, Path(place) / "state.pt"
                    )
                    ray.train.report({}, checkpoint=Checkpoint(place))
                else:
                    ray.train.report({})
            log.saved(step, time.perf_counter() - began)


def main(folder: str, every: int) -> None:
    """Fit for as long as this process lives."""
    ray.init(address="local", num_cpus=3, include_dashboard=False)
    TorchTrainer(
        train,
        train_loop_config={"folder": folder, "every": every},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="stock",
            storage_path=f"{folder}/ray",
            failure_config=FailureConfig(max_failures=-1),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    ).fit()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
