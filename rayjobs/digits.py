"""A small convolutional network that reads the digits of people it has never seen write."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, cross_entropy, grid_sample

from footplate.train import Batch, Context


class DigitNet(nn.Module):
    """
    Two convolutions and two linear layers, for images of 8x8 pixels from 0 to 16.

    Args:
        width: Channels of the first convolution; the second one has twice as many.
        dropout: Share of the features that a training step leaves out.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
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

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the ten digits, for images (N, 8, 8)."""
        pixels = image.unsqueeze(1).float() / 16 - 0.5
        logits: Tensor = self.layers(pixels)
        return logits


def distorted(image: Tensor, strength: float) -> Tensor:
    """
    Every image turned, stretched, slanted and shifted a little, as another hand would write it.

    Args:
        image: Shape (N, 8, 8).
        strength: Standard deviation of the entries of the affine maps; 0 changes nothing.
    """
    identity = torch.eye(2, 3, device=image.device)
    maps = identity + strength * torch.randn(len(image), 2, 3, device=image.device)
    planes = image.unsqueeze(1).float()
    grid = affine_grid(maps, list(planes.shape), align_corners=False)
    return grid_sample(planes, grid, align_corners=False).squeeze(1)


def train(ctx: Context) -> None:
    """Train by AdamW under a cosine schedule; the accuracy is the held-out one."""
    model = ctx.prepare(DigitNet(width=ctx.params["width"], dropout=ctx.params["dropout"]))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=ctx.params["lr"], weight_decay=ctx.params["weight_decay"]
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / ctx.total_steps)) / 2
    )
    ctx.track(model=model, optimizer=optimizer, scheduler=scheduler)

    def measured(batch: Batch) -> dict[str, Tensor]:
        logits = model(batch["image"])
        correct = logits.argmax(dim=1) == batch["label"]
        return {
            "loss": cross_entropy(logits, batch["label"]),
            "accuracy": correct.double().mean(),
        }

    for batch in ctx.batches("train"):
        image = distorted(batch["image"], ctx.params["distortion"])
        loss = cross_entropy(model(image), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ctx.step(loss=loss)

        if ctx.due("evaluate"):
            ctx.evaluate(measured, data="valid")
