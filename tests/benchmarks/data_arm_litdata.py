"""LitData; its settings are ``items`` (tokens or tensors), ``chunk_mb`` and ``workers``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from litdata import (  # type: ignore[import-not-found]
    StreamingDataLoader,
    StreamingDataset,
    optimize,
)
from litdata.streaming import downloader  # type: ignore[import-not-found]
from litdata.streaming.item_loader import TokensLoader  # type: ignore[import-not-found]
from torch import Tensor

from data_arm import BATCH, Streams, Task, main
from data_samples import LENGTH, Samples


def write(task: Task) -> None:
    """Chunks, as its own tool makes them."""
    optimize(
        partial(_sample, Path(task.samples)),
        inputs=list(range(task.rows)),
        output_dir=task.folder,
        chunk_bytes=f"{task.settings['chunk_mb']}MB",
        num_workers=1,
        item_loader=_loader(task.settings),
        verbose=False,
    )


def _sample(samples: Path, number: int) -> Tensor:
    return torch.from_numpy(Samples(samples).mapped()[number].copy())


def _loader(settings: dict[str, Any]) -> TokensLoader | None:
    return TokensLoader(block_size=LENGTH) if settings["items"] == "tokens" else None


def streams(task: Task) -> Streams:
    """Of each epoch; its loader shuffles each in another way."""
    # Its faster client refuses an endpoint without TLS, and no setting reaches it.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    dataset = StreamingDataset(
        task.uri or task.folder,
        cache_dir=task.scratch if task.uri else None,
        item_loader=_loader(task.settings),
        shuffle=True,
        drop_last=False,
        storage_options={"endpoint_url": task.endpoint} if task.endpoint else None,
        max_cache_size="100GB",
    )
    workers = task.settings["workers"]
    loader = StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0
    )
    while True:
        yield _tensors(loader)


def _tensors(loader: StreamingDataLoader) -> Iterator[Tensor]:
    yield from loader


if __name__ == "__main__":
    main(write, streams)
