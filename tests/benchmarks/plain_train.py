"""
The training of ``rayjobs/digits.py`` as one writes it by hand, with Ray Train alone.

It prints when rank 0 has made its first step.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import mlflow
import numpy
import ray.data
import ray.train
import torch
from pyarrow.fs import S3FileSystem
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

_PARAMS = {"lr": 3e-3, "weight_decay": 0.05, "width": 32, "dropout": 0.1, "epochs": 40}


def network(width: int, dropout: float) -> nn.Module:
    """For images of 8x8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, width, kernel_size=3, padding=1),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, kernel_size=3, padding=1),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(8 * width, 128),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(128, 10),
    )


def collate(batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Images and labels of some rows."""
    pixels = numpy.frombuffer(b"".join(batch["image"]), dtype=numpy.uint8)
    image = torch.from_numpy(pixels.reshape(-1, 1, 8, 8).copy()).float() / 16 - 0.5
    return image, torch.from_numpy(batch["label"].copy())


def train(config: dict[str, Any]) -> None:
    """What each rank does."""
    is_first = ray.train.get_context().get_world_rank() == 0
    if is_first:
        mlflow.set_experiment("digits")
        mlflow.start_run()
        mlflow.log_params(config)
    model = prepare_model(network(config["width"], config["dropout"]))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"]
    )
    rows = ray.train.get_dataset_shard("train")
    step = 0
    for epoch in range(config["epochs"]):
        batches = rows.iter_torch_batches(
            batch_size=32, collate_fn=collate, drop_last=True, local_shuffle_buffer_size=512
        )
        for image, label in batches:
            loss = cross_entropy(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if is_first and step == 1:
                print_first(time.time(), loss.item())
        if is_first:
            mlflow.log_metric("loss", loss.item(), step=epoch)
    report(model, is_first=is_first)


def print_first(when: float, loss: float) -> None:
    """What the benchmark looks for."""
    print(json.dumps({"first_step": {"time": when, "loss": loss}}), flush=True)


def report(model: nn.Module, *, is_first: bool) -> None:
    """The checkpoint, once."""
    if not is_first:
        ray.train.report({})
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder) / "model.pt")
        ray.train.report({}, checkpoint=Checkpoint.from_directory(folder))
    mlflow.end_run()


def main() -> None:
    """Train on two workers, from and to the object store."""
    store = S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"])
    trainer = TorchTrainer(
        train,
        train_loop_config=_PARAMS,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(
            name=os.environ["RUN"], storage_path=os.environ["STORE"], storage_filesystem=store
        ),
        datasets={"train": ray.data.read_parquet(os.environ["DATA"], filesystem=store)},
    )
    trainer.fit()


if __name__ == "__main__":
    main()
