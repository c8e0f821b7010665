"""
What one loader's process does: write its format, or read all samples and say how that went.

A script of an arm calls :func:`main` with its two functions. It is started with a task in JSON,
and the last line that it prints is the result, in JSON too. It runs in the peers' environment as
well, which has nothing of Footplate.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from data_samples import LENGTH, weighted_sum

__all__ = ["BATCH", "Task", "Usage", "main"]

BATCH = 32
_WATCH_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Task:
    """
    What a process is to do.

    Attributes:
        action: ``write``, ``read``, or one that the arm has of its own.
        samples: The file with the tokens.
        folder: Of the loader's own format.
        rows: Samples in it.
        settings: Of the loader.
        seconds: How long to read at least after the first epoch, in whole ones; None if that
            one is all.
        check: Whether one more epoch is read, with a look at every token.
        uri: Where the format is to be read from, if not from ``folder``.
        endpoint: Of the object store that ``uri`` is in.
        scratch: A folder for what the loader keeps on the node's disk; empty.
    """

    action: str
    samples: str
    folder: str
    rows: int
    settings: dict[str, Any]
    seconds: float | None = 0.0
    check: bool = False
    uri: str | None = None
    endpoint: str | None = None
    scratch: str = ""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """
    How reading went.

    Attributes:
        first_batch_s: From asking for the first epoch to having its first batch.
        samples_per_s: After the first epoch, over several whole ones and what is between them;
            of the first, where that is all.
        epoch_samples_per_s: Of the first epoch, with all that it takes to begin: who
            starts processes pays for that here.
        cpu_us: Of all processes of the arm, microseconds a sample.
        peak_mb: Most memory of the process that gets the batches, above what it had before;
            without files that are mapped into it, whose pages are the kernel's.
        displacement: How far samples of an epoch are from their place in the files on average,
            as a part of what a permutation of all of them does.
        in_sequence: Part of the samples that follow the one before them in the files, too.
        content: The weighted sum of an epoch; None if not asked for.
    """

    first_batch_s: float
    samples_per_s: float
    epoch_samples_per_s: float
    cpu_us: float
    peak_mb: float
    displacement: float
    in_sequence: float
    content: int | None = None


Streams = Iterator[Iterable[Tensor]]
Actions = dict[str, Callable[[Task], Any]]


def main(
    write: Callable[[Task], object],
    streams: Callable[[Task], Streams],
    actions: Actions | None = None,
) -> None:
    """
    Do the task of the command line.

    Args:
        write: Makes the format.
        streams: Yields batches of epoch after epoch: either a stream for each, or one for all.
        actions: Further ones by name; what they return is the result.
    """
    torch.set_num_threads(1)
    task = Task(**json.loads(sys.argv[1]))
    known: Actions = {"write": write, "read": lambda task: _read(task, streams(task))}
    result = (known | (actions or {}))[task.action](task)
    print(flush=True)
    print(json.dumps(result), flush=True)


def _read(task: Task, streams: Streams) -> dict[str, Any]:
    usage, seen = Usage(), Seen(task.rows)
    began = time.perf_counter()
    # Of the first batch, and of the end of the first epoch.
    first: float | None = None
    epoch: float | None = None
    for stream in streams:
        batches = iter(stream)
        for batch in batches:
            is_whole = seen.add(batch)
            if first is None:
                first = time.perf_counter()
            if is_whole:
                ended = time.perf_counter()
                epoch = epoch or ended
                if _is_enough(ended - epoch, task):
                    break
        assert seen.is_whole, f"an epoch ended after {seen.rows} samples of {task.rows}"
        assert epoch is not None
        if _is_enough(ended - epoch, task):
            break
    assert first is not None
    assert epoch is not None
    cpu_s, peak_mb = usage.taken()
    later = seen.rows - task.rows
    return asdict(
        Reading(
            first_batch_s=first - began,
            samples_per_s=later / (ended - epoch) if later else task.rows / (epoch - began),
            epoch_samples_per_s=task.rows / (epoch - began),
            cpu_us=cpu_s / seen.rows * 1e6,
            peak_mb=peak_mb,
            displacement=seen.displacement,
            in_sequence=seen.in_sequence,
            content=_content(task, batches, streams) if task.check else None,
        )
    )


def _is_enough(seconds: float, task: Task) -> bool:
    """Whether reading has gone on for long enough after the first epoch."""
    return task.seconds is None or (seconds > 0 and seconds >= task.seconds)


def _content(task: Task, rest: Iterator[Tensor], streams: Streams) -> int:
    """Of one more epoch: of the rest of the stream, if it goes on, or else of the next one."""
    total = rows = 0
    following: Iterator[Tensor] = rest
    while rows < task.rows:
        batch = next(following, None)
        if batch is None:
            assert not rows, f"the epoch that was looked at ended after {rows} samples"
            following = iter(next(streams))
            continue
        total += weighted_sum(batch.numpy())
        rows += len(batch)
    assert rows == task.rows, (rows, task.rows)
    return total % 2**64


class Seen:
    """
    The numbers of the samples of an epoch, each of which must come exactly once.

    Args:
        rows: Samples of an epoch.
    """

    def __init__(self, rows: int) -> None:
        self._numbers = torch.empty(rows, dtype=torch.int32)
        self._epoch_rows = rows
        self._filled = 0
        self.rows = 0
        self.displacement = self.in_sequence = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether an epoch has just ended."""
        return not self._filled

    def add(self, batch: Tensor) -> bool:
        """Take note of a batch; True if it ends an epoch."""
        count = len(batch)
        assert batch.shape == (count, LENGTH), batch.shape
        assert batch.dtype == torch.int32, batch.dtype
        self._numbers[self._filled : self._filled + count] = batch[:, 0]
        self._filled += count
        self.rows += count
        if self._filled < self._epoch_rows:
            return False
        self._check()
        self._filled = 0
        return True

    def _check(self) -> None:
        numbers = self._numbers.numpy().astype(np.int64)
        counts = np.bincount(numbers, minlength=self._epoch_rows)
        assert (counts == 1).all(), f"{(counts != 1).sum()} samples did not come exactly once"
        self.in_sequence = float((np.diff(numbers) == 1).mean())
        moved = np.abs(numbers - np.arange(len(numbers))).mean()
        self.displacement = float(moved / (len(numbers) / 3))


class Usage:
    """What the process and those that it started take from now on."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._cpu_s()
        self._least_kb = self._most_kb = _status_kb("RssAnon")
        self._is_over = threading.Event()
        # The kernel keeps no maximum of this.
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def taken(self) -> tuple[float, float]:
        """Seconds of CPU, and the most memory above what there was, MB."""
        self._is_over.set()
        self._watcher.join()
        return self._cpu_s() - self._before, (self._most_kb - self._least_kb) / 1e3

    def _watch(self) -> None:
        while not self._is_over.wait(_WATCH_S):
            self._most_kb = max(self._most_kb, _status_kb("RssAnon"))

    def _cpu_s(self) -> float:
        total = 0.0
        for process in (self._process, *self._process.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total


def _status_kb(name: str) -> int:
    status = Path(f"/proc/{os.getpid()}/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])
