"""
How long saving stops training, what it costs in all, and how fast state comes back.

Each arm saves the same training in the same processes in turn; a figure is the median of the
ratios of the turns. Whatever an arm restores must be the state of the step it was saved at, bit
for bit, though training went on while it was written; else the benchmark fails.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint_goodput import figures_of_goodput
from figures import Figure
from peers import peers_python

__all__ = ["SECTIONS", "measure"]

_HERE = Path(__file__).parent
_MEMORY = Path("/dev/shm")  # noqa: S108  # a file system that no disk slows
_RANKS = 2
_TIMEOUT_S = 1800.0
# Each on ranks of its own: the arms of all of them do not fit into 24 GB of memory.
_PARTS = (("stall",), ("total", "fan_out", "restore"))
_DCP = ("dcp thread", "dcp staged", "dcp process")
_BOTO3_SETTINGS = ((8, 10), (16, 32))  # MB a part, threads: as it comes, and what is faster

Seconds = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class _Size:
    """How much is measured: MB of parameters and of uploads, turns, and a training's length."""

    megabytes: int
    upload_mb: int
    turns: int
    steps: int
    saves: int


_FULL = _Size(megabytes=403, upload_mb=512, turns=5, steps=8, saves=4)
_SHORT = _Size(megabytes=32, upload_mb=32, turns=1, steps=2, saves=1)


def measure(*, short: bool, only: str | None = None) -> list[Figure]:
    """
    Stall, whole cost, sharing of the work, restore, and uploads.

    Args:
        short: For whether it works.
        only: One of the sections.
    """
    figures = []
    for name, section in SECTIONS.items():
        if only in (None, name):
            loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
            print(f"== {name}; load {loads}", flush=True)
            figures += section(_SHORT if short else _FULL)
    return figures


def _saving(size: _Size) -> list[Figure]:
    found = {name: turns for part in _PARTS for name, turns in _on_ranks(size, part).items()}
    for name, turns in found.items():
        _print_table(name, turns)
    stall, total = found["stall"], found["total"]
    return [
        _figure("stall_to_copy", stall, "footplate", "copy of a share", 1.25, "less"),
        _figure("torch_save_to_stall", stall, "torch.save", "footplate", 5.0, "more"),
        Figure(
            name="dcp_to_stall",
            value=min(_ratio(stall, each, "footplate") for each in _DCP),
            target=1.5,
            better="more",
        ),
        Figure(
            name="extra_to_torch_save",
            value=_extra(total, "footplate") / _extra(total, "torch.save"),
            target=0.5,
            better="less",
        ),
        _figure("two_ranks_to_one", found["fan_out"], "all", "one", 0.6, "less"),
        _figure("restore_to_copy", found["restore"], "footplate", "copy", 3.0, "less"),
        _figure("dcp_load_to_restore", found["restore"], "dcp staged", "footplate", 1.5, "more"),
    ]


def _extra(turns: Sequence[Seconds], arm: str) -> float:
    """
    Seconds of a training that are due to its saves, the median.

    A ratio of each turn by itself would have a difference of what is nearly the same below.
    """
    return _median(f"extra of {arm}, seconds", [turn[arm] - turn["none"] for turn in turns])


def _figure(
    name: str, turns: Sequence[Seconds], over: str, under: str, target: float, better: Any
) -> Figure:
    return Figure(name=name, value=_ratio(turns, over, under), target=target, better=better)


def _ratio(turns: Sequence[Seconds], over: str, under: str) -> float:
    return _median(f"{over} / {under}", [turn[over] / turn[under] for turn in turns])


def _median(what: str, values: Sequence[float]) -> float:
    """The median, printed with the range."""
    middle = statistics.median(values)
    print(f"{what}: {middle:.2f} ({min(values):.2f} to {max(values):.2f})", flush=True)
    return middle


def _print_table(name: str, turns: Sequence[Seconds]) -> None:
    print(f"{name}, seconds: median (least to greatest)", flush=True)
    for arm in turns[0]:
        values = [turn[arm] for turn in turns]
        middle = statistics.median(values)
        print(f"  {arm:16} {middle:8.3f} ({min(values):.3f} to {max(values):.3f})", flush=True)


def _on_ranks(size: _Size, measures: Sequence[str]) -> dict[str, list[dict[str, float]]]:
    """What the ranks saw, in processes of their own."""
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="footplate-benchmark-") as folder:
        common = {
            "folder": folder,
            "world_size": _RANKS,
            "megabytes": size.megabytes,
            "turns": size.turns,
            "steps": size.steps,
            "saves": size.saves,
            "measures": measures,
        }
        ranks = [
            subprocess.Popen(
                [sys.executable, _HERE / "checkpoint_ranks.py", json.dumps({**common, "rank": n})],
                stdout=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,
            )
            for n in range(_RANKS)
        ]
        try:
            printed = [rank.communicate(timeout=_TIMEOUT_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    os.killpg(rank.pid, signal.SIGKILL)
                    rank.wait()
        assert all(rank.returncode == 0 for rank in ranks), "a rank failed: see above"
    lines = [line for line in printed[0].decode().splitlines() if line.startswith("{")]
    found: dict[str, list[dict[str, float]]] = json.loads(lines[-1])
    return found


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _upload(size: _Size) -> list[Figure]:
    """A checkpoint to a store that keeps nothing, beside boto3 with the same bytes."""
    python = str(peers_python("checkpoint"))
    with _sink() as endpoint:
        boto3 = {
            f"boto3 ({threads} x {part} MB)": [
                *(python, str(_HERE / "upload_boto3.py"), endpoint),
                *(str(size.upload_mb), str(part), str(threads)),
            ]
            for part, threads in _BOTO3_SETTINGS
        }
        ours = [
            *(sys.executable, str(_HERE / "upload_footplate.py"), endpoint, str(size.upload_mb))
        ]
        commands = {"footplate": ours, **boto3}
        turns = [
            {name: _run(command) for name, command in commands.items()} for _ in range(size.turns)
        ]
    for name in commands:
        rate = statistics.median(size.upload_mb / turn[name]["seconds"] for turn in turns)
        cpu = statistics.median(turn[name]["cpu_s"] * 1024 / size.upload_mb for turn in turns)
        print(f"  {name:20} {rate:7.0f} MB/s, {cpu:.2f} CPU s/GB", flush=True)
    best = max(boto3, key=lambda name: -sum(turn[name]["seconds"] for turn in turns))
    seconds = [{name: each["seconds"] for name, each in turn.items()} for turn in turns]
    cpu_s = [{name: each["cpu_s"] for name, each in turn.items()} for turn in turns]
    return [
        _figure("upload_to_boto3", seconds, best, "footplate", 3.0, "more"),
        _figure("upload_cpu_to_boto3", cpu_s, "footplate", best, 0.25, "less"),
    ]


@contextmanager
def _sink() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, _HERE / "upload_sink.py"], stdout=subprocess.PIPE, text=True
    ) as sink:
        try:
            assert sink.stdout is not None
            yield f"http://127.0.0.1:{int(sink.stdout.readline())}"
        finally:
            sink.kill()


def _run(command: Sequence[str]) -> dict[str, float]:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, env=_environment(), timeout=_TIMEOUT_S, check=True
    )
    result: dict[str, float] = json.loads(done.stdout.decode().splitlines()[-1])
    return result


def _goodput(size: _Size) -> list[Figure]:
    return figures_of_goodput(short=size is _SHORT)


SECTIONS = {"saving": _saving, "upload": _upload, "goodput": _goodput}
