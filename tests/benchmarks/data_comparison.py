"""Arms beside each other: the fastest settings of each, turns, ratios and tables."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from data_arms import PEERS, Arm, Workspace

__all__ = [
    "RATE",
    "WHOLE_RATE",
    "Read",
    "Results",
    "fastest",
    "in_turn",
    "median",
    "print_table",
    "ratio",
    "to_best_peer",
]

RATE = "samples_per_s"
WHOLE_RATE = "epoch_samples_per_s"
_COLUMNS = {
    RATE: "samples/s",
    WHOLE_RATE: "whole epoch",
    "first_batch_s": "first batch s",
    "cpu_us": "CPU us/sample",
    "peak_mb": "peak MB",
    "displacement": "displacement",
}

Read = Callable[..., dict[str, Any]]
Results = dict[str, list[dict[str, Any]]]


def fastest(
    workspace: Workspace, candidates: Mapping[str, Sequence[Arm]], read: Read, rate: str
) -> dict[str, Arm]:
    """Of each loader the fastest settings."""
    workspace.prepare(arm for arms in candidates.values() for arm in arms)
    chosen = {}
    for name, arms in candidates.items():
        rates = {arm.label: read(arm)[rate] for arm in arms}
        chosen[name] = max(arms, key=lambda arm: rates[arm.label])
        for label, value in rates.items():
            mark = "*" if label == chosen[name].label else " "
            print(f"{mark} {label}: {value:,.0f} samples/s", flush=True)
    return chosen


def in_turn(arms: Mapping[str, Arm], read: Read, *, rounds: int, at_once: int = 1) -> Results:
    """Read with each arm, and again; the first time with a look at every token afterwards."""
    results: Results = {name: [] for name in arms}
    with ThreadPoolExecutor(at_once) as threads:
        for turn in range(rounds):
            found = threads.map(partial(read, check=turn == 0), arms.values())
            for name, result in zip(arms, found, strict=True):
                results[name].append(result)
            rates = ", ".join(f"{name} {each[-1][RATE]:,.0f}" for name, each in results.items())
            print(f"turn {turn + 1}: {rates} samples/s", flush=True)
    return results


def to_best_peer(results: Results, ours: str, rate: str) -> float:
    """The least of the ratios to the peers."""
    return min(ratio(results, ours, peer, rate) for peer in PEERS)


def ratio(results: Results, ours: str, other: str, rate: str) -> float:
    """The median over the turns; prints it with the least and the greatest."""
    pairs = zip(results[ours], results[other], strict=True)
    ratios = [mine[rate] / theirs[rate] for mine, theirs in pairs]
    middle = median(ratios)
    print(f"{ours} / {other}: {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    return middle


def print_table(title: str, arms: Mapping[str, Arm], results: Results) -> None:
    """The medians of each arm, and how busy the machine was."""
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{title}; {os.cpu_count()} CPUs, load {loads}")
    print(f"{'':74}", *(f"{told:>14}" for told in _COLUMNS.values()))
    for name, arm in arms.items():
        medians = (median(each[column] for each in results[name]) for column in _COLUMNS)
        print(f"{name:11}{arm.label:63}", *(f"{value:14,.4g}" for value in medians))
    print(flush=True)


def median(values: Iterable[float]) -> float:
    """Of any number of values."""
    return float(statistics.median(list(values)))
