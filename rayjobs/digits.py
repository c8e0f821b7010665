"""A small convolutional network that reads the digits of people it has never seen write."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from footplate.train import Batch, Columns, Context, SampleKeys, draws

Images = npt.NDArray[np.float32]
Points = npt.NDArray[np.float64]

SIDE = 8
# Standard deviation of the entries of the affine maps.
DISTORTION = 0.1


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


def distorted(columns: Columns, keys: SampleKeys) -> Columns:
    """
    Every image turned, stretched, slanted and shifted a little, as another hand would write it.

    Ray Data's tasks apply it; what is drawn depends on the keys of the samples alone.
    """
    images = np.asarray(columns["image"], dtype=np.float32)
    deviations = np.sqrt(12) * DISTORTION * (draws(keys, 6) - 0.5)
    maps = np.eye(2, 3) + deviations.reshape(-1, 2, 3)
    places = (np.arange(SIDE) + 0.5) / SIDE * 2 - 1
    y, x = np.meshgrid(places, places, indexing="ij")
    # Where each pixel of the result comes from, counted in pixels.
    column, row = np.moveaxis(maps @ np.stack([x.ravel(), y.ravel(), np.ones(x.size)]), 1, 0)
    found = interpolated(images, (row + 1) / 2 * SIDE - 0.5, (column + 1) / 2 * SIDE - 0.5)
    return {**columns, "image": found.reshape(images.shape)}


def interpolated(images: Images, rows: Points, columns: Points) -> Images:
    """Between the four pixels around each of (N, points) places; outside an image is nothing."""
    padded = np.pad(images, ((0, 0), (1, 2), (1, 2)))
    rows, columns = (np.clip(each + 1, 0, SIDE + 1) for each in (rows, columns))
    top, left = rows.astype(int), columns.astype(int)
    down, right = rows - top, columns - left
    number = np.arange(len(images))[:, None]
    above = (1 - right) * padded[number, top, left] + right * padded[number, top, left + 1]
    below = (1 - right) * padded[number, top + 1, left] + right * padded[number, top + 1, left + 1]
    found: Images = ((1 - down) * above + down * below).astype(np.float32)
    return found


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
        loss = cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ctx.step(loss=loss)

        if ctx.due("evaluate"):
            ctx.evaluate(measured, data="valid")
