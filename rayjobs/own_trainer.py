"""
A stock script of Ray Train, with a trainer of its own, that tells two spirals apart.

All of Footplate in it is one call, :func:`footplate.train.attach`: by that the run has a Job UID,
goes on with the checkpoints of an earlier attempt, and is recorded in one MLflow run.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import mlflow
import ray.train
import torch
from ray.train import Checkpoint
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import footplate.train

_STATE = "state.pt"


def spirals(points: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noisy points on two arms, shape (N, 2), and which arm each is on."""
    random = torch.Generator().manual_seed(seed)
    arm = torch.arange(points) % 2
    turn = 0.25 + torch.rand(points, generator=random)
    angle = 2 * math.pi * turn + math.pi * arm
    place = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1)
    return place + 0.02 * torch.randn(points, 2, generator=random), arm


def network(width: int) -> nn.Module:
    """Two hidden layers between a place and the logits of the arms."""
    return nn.Sequential(
        nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
    )


def train(config: dict[str, Any]) -> None:
    """What each rank does: an epoch, a checkpoint, and so on."""
    torch.manual_seed(0)
    model = prepare_model(network(config["width"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    done = restored(config["resume_from"], model, optimizer)
    loader = prepare_data_loader(
        DataLoader(TensorDataset(*spirals(2048)), batch_size=64, shuffle=True)
    )
    for epoch in range(done, config["epochs"]):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        losses = [step(model, optimizer, *batch) for batch in loader]
        report(epoch, sum(losses) / len(losses), model, optimizer)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, place: Tensor, arm: Tensor) -> float:
    """One optimizer step; the loss before it."""
    loss = cross_entropy(model(place), arm)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def report(epoch: int, loss: float, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Report an epoch to Ray; from rank 0 with a checkpoint, and to MLflow as well."""
    metrics = {"epoch": epoch, "loss": loss}
    if ray.train.get_context().get_world_rank() != 0:
        ray.train.report(metrics)
        return
    print(f"epoch {epoch}: loss {loss:.4f}")
    mlflow.log_metric("loss", loss, step=epoch)
    with tempfile.TemporaryDirectory() as folder:
        state = {
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        torch.save(state, Path(folder) / _STATE)
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def restored(
    checkpoint: Checkpoint | None, model: nn.Module, optimizer: torch.optim.Optimizer
) -> int:
    """Take over what a checkpoint holds; how many epochs are done."""
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        state = torch.load(Path(folder) / _STATE, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"]) + 1


def main() -> None:
    """Train, in the run that this script was started for."""
    run = footplate.train.attach()
    with mlflow.start_run():
        mlflow.log_params(dict(run.params))
        trainer = TorchTrainer(
            train,
            train_loop_config={**run.params, "resume_from": run.resume_from},
            scaling_config=run.scaling_config(),
            run_config=run.run_config(),
        )
        trainer.fit()


if __name__ == "__main__":
    main()
