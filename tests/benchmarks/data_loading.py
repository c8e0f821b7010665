"""
How fast samples come to the process that trains on them, beside the loaders that are known.

Every loader runs in processes of its own, with one thread for numerics, at the fastest of its
settings; one after the other, several times in turn. A ratio is the median of those of the turns.
Each must deliver every sample exactly once, shuffled, or the benchmark fails.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from data_arms import CARRIED, CEILING, GATHERED, PEERS, STOCK, Arm, Remote, Workspace
from data_remote import served
from data_shuffling import figures_of_shuffling
from figures import Figure
from testbed import SetupError

__all__ = ["measure"]

_LATENCY_S = 0.03
_STEP_S = 2e-3
_RATE = "samples_per_s"
_WHOLE_RATE = "epoch_samples_per_s"


@dataclass(frozen=True, kw_only=True)
class _Size:
    """
    How much is measured.

    Attributes:
        rows: Samples.
        more_rows: Of the larger data set.
        seconds: That an arm reads at least.
        rounds: Turns of the main comparison.
        few_rounds: Of the one with an object store.
        times: That a resume is tried.
        tune: Whether the best settings are looked for, or the first ones taken.
    """

    rows: int
    more_rows: int
    seconds: float
    rounds: int
    few_rounds: int
    times: int
    tune: bool


_FULL = _Size(
    rows=40_960,
    more_rows=163_840,
    seconds=4.0,
    rounds=5,
    few_rounds=3,
    times=5,
    tune=True,
)
_SHORT = _Size(
    rows=4096, more_rows=12_288, seconds=0.0, rounds=1, few_rounds=1, times=2, tune=False
)

Results = dict[str, list[dict[str, Any]]]


def measure(*, short: bool) -> list[Figure]:
    """The rates, from memory and from an object store; then what else a training waits for."""
    size = _SHORT if short else _FULL
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)
    figures = figures_of_shuffling(short=short)
    with Workspace.made(size.rows) as workspace:
        arms, results = _beside_peers(workspace, size)
        for ours, target in (("gathered", 5.0), ("carried", 2.0)):
            ratio = _to_best_peer(results, ours, _RATE)
            figures.append(
                Figure(name=f"{ours}_to_peers", value=ratio, target=target, better="more")
            )
        figures.append(_waiting(workspace, arms["gathered"]))
        figures += _remote_rates(workspace, size)
    with Workspace.made(size.more_rows) as workspace:
        arms, more_results = _beside_stock(workspace, arms, size)
        for ours, target in (("gathered", 2.0), ("carried", 1.2)):
            ratio = _ratio(more_results, ours, "stock", _RATE)
            figures.append(
                Figure(name=f"{ours}_to_stock", value=ratio, target=target, better="more")
            )
        figures += _resumes(workspace, arms, size)
    figures.append(_memory(results, more_results))
    return figures


def _beside_peers(workspace: Workspace, size: _Size) -> tuple[dict[str, Arm], Results]:
    read = _reading(workspace, size)
    candidates = {"gathered": GATHERED, "carried": CARRIED, **PEERS}
    arms = _fastest(workspace, candidates, read, size, _RATE)
    arms["ceiling"] = CEILING
    results = _in_turn(arms, read, size, size.rounds)
    _print_table(f"from memory, {workspace.rows:,} samples", arms, results)
    _print_distance(workspace, arms["gathered"], results)
    return arms, results


def _beside_stock(
    workspace: Workspace, chosen: Mapping[str, Arm], size: _Size
) -> tuple[dict[str, Arm], Results]:
    """
    On more samples: Ray Data takes long to begin an epoch, and then has much of it at hand.

    It is faster if it shuffles only files; beside it stands the same with its local shuffling.
    """
    read = _reading(workspace, size)
    arms = {name: chosen[name] for name in ("gathered", "carried")}
    workspace.prepare(arms.values())
    arms |= _fastest(workspace, {"stock": STOCK}, read, size, _RATE)
    if size.tune:
        buffered = {**arms["stock"].settings, "buffer": 1000}
        arms["buffered"] = Arm(script="ray", settings=buffered)
    results = _in_turn(arms, read, size, size.rounds)
    _print_table(f"from memory, {workspace.rows:,} samples", arms, results)
    return arms, results


def _reading(workspace: Workspace, size: _Size) -> Callable[..., dict[str, Any]]:
    return partial(workspace.read, seconds=size.seconds)


def _remote_rates(workspace: Workspace, size: _Size) -> list[Figure]:
    """Each time from an empty cache; with the time to the first batch, since all must begin."""
    try:
        with served(workspace, latency_s=_LATENCY_S) as remote:
            return _rates_from(workspace, size, remote)
    except SetupError as error:
        print(f"no object store: {error}")
        return []


def _rates_from(workspace: Workspace, size: _Size, remote: Remote) -> list[Figure]:
    read = partial(workspace.read, seconds=0.0, remote=remote)
    candidates = {"gathered": GATHERED, **{name: _remote(arms) for name, arms in PEERS.items()}}
    arms = _fastest(workspace, candidates, read, size, _WHOLE_RATE)
    results = _in_turn(arms, read, size, size.few_rounds)
    _print_table(f"from S3 with {_LATENCY_S * 1e3:.0f} ms, a whole epoch", arms, results)
    ratio = _to_best_peer(results, "gathered", _WHOLE_RATE)
    return [Figure(name="s3_to_peers", value=ratio, target=3.0, better="more")]


def _remote(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """Smaller files come sooner, and larger ones need fewer requests."""
    name = next(name for name in arms[0].settings if name.endswith("_mb"))
    return tuple(
        Arm(script=arm.script, settings={**arm.settings, name: megabytes})
        for megabytes in dict.fromkeys((arms[0].settings[name], 8, 64))
        for arm in arms
    )


def _fastest(
    workspace: Workspace,
    candidates: Mapping[str, Sequence[Arm]],
    read: Callable[..., dict[str, Any]],
    size: _Size,
    rate: str,
) -> dict[str, Arm]:
    """Of each loader the fastest settings; all of them must read what was written."""
    chosen = {name: arms[0] for name, arms in candidates.items()}
    if not size.tune:
        workspace.prepare(chosen.values())
        return chosen
    workspace.prepare(arm for arms in candidates.values() for arm in arms)
    for name, arms in candidates.items():
        rates = {arm.label: read(arm, check=True)[rate] for arm in arms}
        best = max(rates, key=rates.__getitem__)
        chosen[name] = next(arm for arm in arms if arm.label == best)
        for label, value in rates.items():
            print(f"{'*' if label == best else ' '} {label}: {value:,.0f} samples/s", flush=True)
    return chosen


def _in_turn(
    arms: Mapping[str, Arm], read: Callable[..., dict[str, Any]], size: _Size, rounds: int
) -> Results:
    """
    Read with each arm, and again.

    Where the settings were not tuned nothing is measured in earnest: every token is looked at, and
    several arms read at once.
    """
    at_once = 1 if size.tune else os.cpu_count()
    with ThreadPoolExecutor(at_once) as threads:
        turns = [
            list(threads.map(partial(read, check=not size.tune), arms.values()))
            for _ in range(rounds)
        ]
    return {name: list(found) for name, found in zip(arms, zip(*turns, strict=True), strict=True)}


def _to_best_peer(results: Results, ours: str, rate: str) -> float:
    return min(_ratio(results, ours, peer, rate) for peer in PEERS)


def _ratio(results: Results, ours: str, peer: str, rate: str) -> float:
    """The median over the turns; prints it with the least and the greatest."""
    pairs = zip(results[ours], results[peer], strict=True)
    ratios = [mine[rate] / theirs[rate] for mine, theirs in pairs]
    median = _median(ratios)
    print(f"{ours} / {peer}: {median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return median


def _print_table(title: str, arms: Mapping[str, Arm], results: Results) -> None:
    columns = {
        _RATE: "samples/s",
        _WHOLE_RATE: "whole epoch",
        "first_batch_s": "first batch s",
        "cpu_us": "CPU us/sample",
        "peak_mb": "peak MB",
        "displacement": "displacement",
    }
    print(f"{title:64}", *(f"{told:>14}" for told in columns.values()))
    for name, arm in arms.items():
        medians = (_median(each[column] for each in results[name]) for column in columns)
        print(f"{name:11}{arm.label:53}", *(f"{median:14,.4g}" for median in medians))
    print(flush=True)


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(list(values)))


def _print_distance(workspace: Workspace, gathered: Arm, results: Results) -> None:
    """How far it is to the ceiling, and what the way is made of."""
    _ratio(results, "gathered", "ceiling", _RATE)
    total, ceiling = (
        _median(each["cpu_us"] for each in results[name]) for name in ("gathered", "ceiling")
    )
    parts: dict[str, float] = workspace.run(gathered, "parts")
    decode, digests, copy = parts["decode"], parts["digests"], parts["copy"]
    print(
        f"CPU us/sample: ceiling {ceiling:.2f}; gathered {total:.2f}, of which reading and "
        f"decoding {decode:.2f} (digests {digests:.2f} of it), copying {copy:.2f}, and the rest "
        f"{total - decode - copy:.2f}",
        flush=True,
    )


def _waiting(workspace: Workspace, gathered: Arm) -> Figure:
    found: dict[str, float] = workspace.run(gathered, "wait")
    print(
        f"steps of {found['mock_s'] * 1e3:.3f} ms with batches at hand take "
        f"{found['real_s'] * 1e3:.3f} ms, of which {found['waited_s'] * 1e6:.1f} us is waiting",
        flush=True,
    )
    return Figure(name="data_wait", value=found["waited_s"] / _STEP_S, target=0.02, better="less")


def _resumes(workspace: Workspace, arms: Mapping[str, Arm], size: _Size) -> list[Figure]:
    """Where in an epoch one goes on must not matter; others read what comes before."""
    gathered = workspace.run(arms["gathered"], "resume", times=size.times)
    carried = workspace.run(arms["carried"], "resume", times=size.times)
    skipped = workspace.run(arms["stock"], "skip", times=max(size.times // 2, 1))
    early, late = _median(gathered["0.1"]), _median(gathered["0.9"])
    print(
        f"first batch at 10 % and 90 % of {workspace.rows:,} samples: gathered {early:.3f} and "
        f"{late:.3f} s; carried {_median(carried['0.1']):.3f} and {_median(carried['0.9']):.3f} "
        f"s; Ray Data that reads up to 90 % {_median(skipped):.3f} s",
        flush=True,
    )
    return [
        Figure(name="resume_late_to_early", value=late / early, target=1.2, better="less"),
        Figure(name="resume_to_reading", value=_median(skipped) / late, target=10.0, better="more"),
    ]


def _memory(results: Results, more_results: Results) -> Figure:
    """Of the process that trains, above what it had before; more samples must not matter."""
    small, large = (
        _median(each["peak_mb"] for each in found["gathered"]) for found in (results, more_results)
    )
    print(f"memory of the gathering process: {small:.0f} MB, with more samples {large:.0f} MB")
    return Figure(name="memory_growth", value=large / small, target=1.1, better="less")
