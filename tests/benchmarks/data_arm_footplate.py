"""
Footplate; its settings are ``path``, ``compression``, ``file_mb`` and ``cache``.

``path`` is how the samples come: ``gather`` (the rank reads them itself, and needs no Ray) or
``ray`` (Ray Data's tasks carry them, as they do where the user's functions are applied).
``cache`` is whether row groups are kept for all processes of the node: what tasks read always is,
what the rank reads only if that is asked for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import torch
import xxhash
from torch import Tensor

from data_arm import BATCH, Streams, Task, main
from data_identity import unchanged
from data_ray import start_ray
from data_samples import SAMPLE_BYTES, Samples
from footplate.data.batches import Assembly
from footplate.data.buffers import Shelf
from footplate.data.columns import decode
from footplate.data.create import create_manifest
from footplate.data.mapped_files import Views
from footplate.data.schedule import Schedule
from footplate.data.source import CacheFolder, DataSource, OpenedSource, opened
from footplate.data.stream import training_batches
from footplate.data.tables import table_of

_ROWS_PER_GROUP = 1024
_STEP_S = 2e-3
_NAME = "tokens"


def write(task: Task) -> str:
    """Parquet files, and the manifest that describes them; its name is the result."""
    folder = Path(task.folder)
    folder.mkdir(parents=True)
    rows_per_file = (task.settings["file_mb"] << 20) // SAMPLE_BYTES
    for number, tokens in enumerate(Samples(Path(task.samples)).blocks(rows_per_file)):
        pyarrow.parquet.write_table(
            table_of({"tokens": np.ascontiguousarray(tokens)}),
            folder / f"part-{number:05d}.parquet",
            row_group_size=_ROWS_PER_GROUP,
            compression=task.settings["compression"],
            use_dictionary=False,
            write_statistics=False,
        )
    return Path(create_manifest(str(folder), name=_NAME).uri).name


def streams(task: Task) -> Streams:
    """All epochs are one stream."""
    _prepare(task)
    return _one_stream(task)


def _prepare(task: Task) -> None:
    """What a run has before it asks for data."""
    if task.settings["path"] == "ray":
        start_ray()


def _one_stream(task: Task) -> Streams:
    yield (_tensor(batch) for _, batch in _stream(task))


def _stream(task: Task, *, step: int = 0) -> Any:
    """From ``step`` steps done on, for as long as one likes."""
    schedule = Schedule(rows=task.rows, batch_size=BATCH, world_size=1, epochs=10**6, last="keep")
    source = _source(task)
    return training_batches(source, schedule, rank=0, step=step, position=step * BATCH)


def _source(task: Task) -> DataSource:
    (manifest,) = Path(task.folder).glob(f"{_NAME}-*.json")
    where = task.uri or task.folder
    is_carried = task.settings["path"] == "ray"
    return DataSource(
        manifests=(f"{where}/{manifest.name}",),
        endpoint=task.endpoint,
        cache=_cache(task) if is_carried or task.settings.get("cache") else None,
        transform=unchanged if is_carried else None,
    )


def _cache(task: Task) -> CacheFolder:
    """With room for everything."""
    return CacheFolder(folder=task.scratch, limit_bytes=3 * task.rows * SAMPLE_BYTES)


def _tensor(batch: dict[str, Any]) -> Tensor:
    tokens = batch["tokens"]
    # A model may write to what it is given, but not to what Ray's processes share.
    return torch.from_numpy(tokens if tokens.flags.writeable else tokens.copy())


def resume(task: Task) -> dict[str, list[float]]:
    """Seconds to the first batch at places of an epoch, in turn."""
    steps = task.rows // BATCH
    found: dict[str, list[float]] = {"0.1": [], "0.9": []}
    _prepare(task)
    _first_batch_s(task, 0)
    for _ in range(task.settings["times"]):
        for place, times in found.items():
            times.append(_first_batch_s(task, int(float(place) * steps)))
    return found


def _first_batch_s(task: Task, step: int) -> float:
    # What this process knows already, the next one after a failure does not.
    opened.cache_clear()
    began = time.perf_counter()
    with closing(_stream(task, step=step)) as stream:
        _, batch = next(stream)
        took = time.perf_counter() - began
    numbers = batch["tokens"][:, 0]
    assert len(np.unique(numbers)) == BATCH, numbers
    return took


def wait(task: Task) -> dict[str, float]:
    """How long steps of 2 ms wait for their batch; and the same steps with batches at hand."""
    work, steps = _work_of(_STEP_S), task.settings["steps"]
    _prepare(task)
    with closing(_stream(task)) as stream:
        batches = (_tensor(batch) for _, batch in stream)
        at_hand = [next(batches) for _ in range(steps // 10)] * 10
        mock_s, _ = _steps(work, iter(at_hand), steps)
        del at_hand
        real_s, waited_s = _steps(work, batches, steps)
    return {"mock_s": mock_s, "real_s": real_s, "waited_s": waited_s}


def _work_of(seconds: float) -> Callable[[], None]:
    """Products of matrices for so long, as an optimizer step would do them."""
    matrix = torch.rand(192, 192)

    def work(products: int) -> None:
        for _ in range(products):
            torch.mm(matrix, matrix)

    times = []
    for _ in range(20):
        began = time.perf_counter()
        work(50)
        times.append((time.perf_counter() - began) / 50)
    products = max(round(seconds / statistics.median(times)), 1)
    return lambda: work(products)


def _steps(work: Callable[[], None], batches: Iterator[Tensor], steps: int) -> tuple[float, float]:
    """Seconds of a step, and how many of them it waited for its batch."""
    waited = 0.0
    began = time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        assert len(batch) == BATCH
        work()
    return (time.perf_counter() - began) / steps, waited / steps


def parts(task: Task) -> dict[str, float]:
    """Microseconds of CPU a sample for each thing that must be done, each alone on one thread."""
    data = opened(_source(task))
    groups = range(sum(len(manifest.group_rows) for manifest in data.manifests))
    content = np.fromfile(task.samples, dtype=np.uint8, count=_ROWS_PER_GROUP * SAMPLE_BYTES)
    return {
        "decode": _alone_us(
            task.rows, lambda: [data.reader.read(g, None, Views()) for g in groups]
        ),
        "shelve": _shelve_us(data),
        "digests": _alone_us(_ROWS_PER_GROUP, lambda: xxhash.xxh3_64_hexdigest(content.data)),
        "copy": _copy_us(task, data),
    }


def _shelve_us(data: OpenedSource) -> float:
    """A row group to where those of its pool are side by side."""
    assembly = Assembly(fields=data.reader.fields)
    sources = assembly.sources(data.reader.read(0, None, Views()))
    shelf = Shelf(8, data.reader.most_rows)

    def shelve() -> None:
        places = [shelf.put(sources)[1] for _ in range(8)]
        for place in places:
            shelf.clear(place)

    return _alone_us(8 * data.manifests[0].group_rows[0], shelve)


def _copy_us(task: Task, data: OpenedSource) -> float:
    """Rows of one pool's row groups to the place of each in the batches."""
    pool = [data.reader.read(group) for group in range(min(8, task.rows // _ROWS_PER_GROUP))]
    tokens = np.concatenate([decode(table, data.reader.fields)["tokens"] for table in pool])
    order = np.random.default_rng(0).permutation(len(tokens))
    batches = np.empty((512, *tokens.shape[1:]), dtype=tokens.dtype)

    def copy() -> None:
        for start in range(0, len(order) - 511, 512):
            np.take(tokens, order[start : start + 512], axis=0, out=batches, mode="clip")

    return _alone_us(len(order) // 512 * 512, copy)


def _alone_us(samples: int, work: Callable[[], object]) -> float:
    """The median of several times."""
    times = []
    for _ in range(7):
        began = time.process_time()
        work()
        times.append((time.process_time() - began) / samples * 1e6)
    return statistics.median(times)


if __name__ == "__main__":
    main(write, streams, {"resume": resume, "wait": wait, "parts": parts})
