"""
Ray Data as it comes; its settings are ``column``, ``source`` and ``buffer``.

``column`` is how the tokens are stored: as a ``list`` of fixed size, or as ``binary`` that becomes
a tensor when it is read, or when it is collated (``collate``). ``source`` is the version of Ray
Data's reader, and ``buffer`` the samples of its local shuffling, or 0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from torch import Tensor

from data_arm import BATCH, Streams, Task, main
from data_ray import start_ray
from data_samples import LENGTH, Samples

_ROWS_PER_GROUP = 1024
_ROWS_PER_FILE = 4 * _ROWS_PER_GROUP


def write(task: Task) -> None:
    """Parquet files without compression, which are read fastest."""
    folder = Path(task.folder)
    folder.mkdir(parents=True)
    for number, tokens in enumerate(Samples(Path(task.samples)).blocks(_ROWS_PER_FILE)):
        values = pyarrow.array(tokens.reshape(-1))
        column: Any = pyarrow.FixedSizeListArray.from_arrays(values, LENGTH)
        if task.settings["column"] != "list":
            width = pyarrow.binary(4 * LENGTH)
            buffers = [None, pyarrow.py_buffer(np.ascontiguousarray(tokens))]
            column = pyarrow.FixedSizeBinaryArray.from_buffers(width, len(tokens), buffers)
        pyarrow.parquet.write_table(
            pyarrow.table({"tokens": column}),
            folder / f"part-{number:05d}.parquet",
            row_group_size=_ROWS_PER_GROUP,
            compression="none",
            use_dictionary=False,
        )


def streams(task: Task) -> Streams:
    """Of each epoch; the files are shuffled, and samples in the buffer, if there is one."""
    os.environ["RAY_DATA_USE_DATASOURCE_V2"] = str(task.settings["source"] - 1)
    start_ray()
    return _epochs(task)


def _epochs(task: Task) -> Streams:
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    schema = {"tokens": (np.dtype(np.int32), (LENGTH,))}
    dataset = ray.data.read_parquet(
        task.folder,
        shuffle="files",
        tensor_column_schema=schema if task.settings["column"] == "binary" else None,
    )
    while True:
        batches = dataset.iter_torch_batches(
            batch_size=BATCH,
            local_shuffle_buffer_size=task.settings["buffer"] or None,
            collate_fn=_collated if task.settings["column"] == "collate" else None,
        )
        yield _tensors(batches)


def _collated(batch: dict[str, Any]) -> dict[str, Tensor]:
    tokens = np.frombuffer(b"".join(batch["tokens"]), dtype=np.int32)
    return {"tokens": torch.from_numpy(tokens.reshape(-1, LENGTH).copy())}


def _tensors(batches: Any) -> Iterator[Tensor]:
    for batch in batches:
        yield batch["tokens"]


def skip(task: Task) -> list[float]:
    """Seconds to the first batch at 90 % of an epoch, by reading all that comes before it."""
    found = []
    epochs = streams(task)
    next(iter(next(epochs)))
    for _ in range(task.settings["times"]):
        began = time.perf_counter()
        batches = iter(next(epochs))
        for _ in range(task.rows // BATCH * 9 // 10):
            next(batches)
        batch = next(batches)
        found.append(time.perf_counter() - began)
        assert len(batch) == BATCH, batch.shape
    return found


if __name__ == "__main__":
    main(write, streams, {"skip": skip})
