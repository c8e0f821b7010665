"""MosaicML Streaming; its settings are ``shard_mb``, ``workers`` and ``stack``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from streaming import (  # type: ignore[import-not-found]
    MDSWriter,
    StreamingDataLoader,
    StreamingDataset,
)
from streaming.base.util import (  # type: ignore[import-not-found]
    clean_stale_shared_memory,
)
from torch import Tensor

from data_arm import BATCH, Streams, Task, main
from data_samples import LENGTH, Samples


def write(task: Task) -> None:
    """Shards of arrays as they are, without compression or digests to check."""
    columns = {"tokens": f"ndarray:int32:{LENGTH}"}
    limit = task.settings["shard_mb"] << 20
    with MDSWriter(out=task.folder, columns=columns, size_limit=limit) as writer:
        for tokens in Samples(Path(task.samples)).mapped():
            writer.write({"tokens": tokens})


def streams(task: Task) -> Streams:
    """Of each epoch; its data set shuffles each in another way."""
    clean_stale_shared_memory()
    dataset = StreamingDataset(
        remote=task.uri,
        local=task.scratch if task.uri else task.folder,
        shuffle=True,
        batch_size=BATCH,
        predownload=task.settings.get("predownload"),
    )
    for stream in dataset.streams:
        # Worker processes would share the connection by which it has fetched the index.
        stream._downloader.clean_up()
    workers = task.settings["workers"]
    loader = StreamingDataLoader(
        dataset,
        batch_size=BATCH,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=_stacked if task.settings["stack"] else None,
    )
    while True:
        yield _tensors(loader)


def _stacked(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """One copy, where the usual way to collate makes a tensor of each sample first."""
    return {"tokens": torch.from_numpy(np.stack([sample["tokens"] for sample in samples]))}


def _tensors(loader: StreamingDataLoader) -> Iterator[Tensor]:
    for batch in loader:
        yield batch["tokens"]


if __name__ == "__main__":
    main(write, streams)
