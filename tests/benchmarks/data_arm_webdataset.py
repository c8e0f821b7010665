"""WebDataset; its settings are ``shard_mb`` and ``workers``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-not-found]
import numpy as np
import torch
import webdataset  # type: ignore[import-not-found]
from torch import Tensor
from webdataset.gopen import gopen_schemes  # type: ignore[import-not-found]

from data_arm import BATCH, Streams, Task, main
from data_samples import SAMPLE_BYTES, Samples

_BUFFER = 1000


def write(task: Task) -> None:
    """Tar files of the bytes of each sample."""
    rows = (task.settings["shard_mb"] << 20) // SAMPLE_BYTES
    Path(task.folder).mkdir(parents=True)
    pattern = f"{task.folder}/%05d.tar"
    with webdataset.ShardWriter(pattern, maxcount=rows, verbose=0) as writer:
        for number, tokens in enumerate(Samples(Path(task.samples)).mapped()):
            writer.write({"__key__": f"{number:08d}", "bin": tokens.tobytes()})


def streams(task: Task) -> Streams:
    """Of each epoch: the shards shuffled, and then samples in a buffer."""
    gopen_schemes["s3"] = _Opener(task.endpoint)
    where = task.uri or task.folder
    urls = [f"{where}/{shard.name}" for shard in sorted(Path(task.folder).glob("*.tar"))]
    workers = task.settings["workers"]
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=len(urls), empty_check=False, seed=0)
        .shuffle(_BUFFER)
        .map(_tokens)
        .batched(BATCH, collation_fn=_stacked, partial=True)
    )
    loader = webdataset.WebLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )
    while True:
        yield _tensors(loader)


class _Opener:
    """How objects of a bucket are opened; the streaming body of its answer is a file."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint

    def __call__(self, url: str, mode: str = "rb", bufsize: int = 8192, **options: Any) -> Any:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        return _client(self._endpoint).get_object(Bucket=bucket, Key=key)["Body"]


@cache
def _client(endpoint: str | None) -> Any:
    return boto3.client("s3", endpoint_url=endpoint)


def _tokens(sample: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(sample["bin"], dtype=np.int32)


def _stacked(samples: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(samples))


def _tensors(loader: webdataset.WebLoader) -> Iterator[Tensor]:
    yield from loader


if __name__ == "__main__":
    main(write, streams)
