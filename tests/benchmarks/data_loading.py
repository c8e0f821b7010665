"""
How fast samples come to the process that trains on them, beside the loaders that are known.

Every loader runs in processes of its own, with one thread for numerics, at the fastest of its
settings; one after the other, several times in turn. A ratio is the median of those of the turns.
Each must deliver every sample exactly once, shuffled, or the benchmark fails.

Each section can be measured alone, in a few minutes; it looks for the settings that it needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from data_arms import CARRIED, CEILING, GATHERED, PEERS, STOCK, Arm, Workspace
from data_comparison import (
    RATE,
    WHOLE_RATE,
    Read,
    Results,
    fastest,
    in_turn,
    median,
    print_table,
    ratio,
    to_best_peer,
)
from data_remote import served
from data_shuffling import figures_of_shuffling
from figures import Figure
from testbed import SetupError

__all__ = ["SECTIONS", "measure"]

_LATENCY_S = 0.03
_STEP_S = 2e-3
_CANDIDATES = {"gathered": GATHERED, "carried": CARRIED, "stock": STOCK, **PEERS}


@dataclass(frozen=True, kw_only=True)
class _Size:
    """
    How much is measured.

    Attributes:
        rows: Samples.
        steady_rows: Many times those that a loader keeps in memory, so that an epoch is read.
        more_rows: Of the larger data set.
        seconds: That an arm reads at least.
        rounds: Turns.
        times: That a resume is tried.
        steps: Whose waiting is measured.
        is_short: Whether the first settings are taken instead of the best, and arms read at the
            same time: nothing is measured in earnest.
    """

    rows: int
    steady_rows: int
    more_rows: int
    seconds: float
    rounds: int
    times: int
    steps: int
    is_short: bool


_FULL = _Size(
    rows=32_768,
    steady_rows=131_072,
    more_rows=163_840,
    seconds=3.0,
    rounds=3,
    times=5,
    steps=1000,
    is_short=False,
)
_SHORT = _Size(
    rows=4096,
    steady_rows=4096,
    more_rows=8192,
    seconds=0.0,
    rounds=1,
    times=1,
    steps=200,
    is_short=True,
)


def measure(*, short: bool, only: str | None = None) -> list[Figure]:
    """
    The rates, from memory and from an object store; then what else a training waits for.

    Args:
        short: For whether it works.
        only: One of the sections.
    """
    figures = []
    with ExitStack() as stack:
        bench = _Bench(_SHORT if short else _FULL, stack)
        for name, section in SECTIONS.items():
            if only in (None, name):
                loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
                print(f"== {name}; load {loads}", flush=True)
                figures += section(bench)
    return figures


class _Bench:
    """
    The samples at hand, and which settings the loaders were fastest with.

    Args:
        size: How much is measured.
        stack: By which the samples are removed in the end.
    """

    def __init__(self, size: _Size, stack: ExitStack) -> None:
        self.size = size
        self._stack = stack
        self._workspace: Workspace | None = None
        self._chosen: dict[str, Arm] = {}

    def forget(self) -> None:
        """Remove the samples; the next ones are made anew."""
        self._stack.close()
        self._workspace = None

    @property
    def at_once(self) -> int:
        """Processes that may run at the same time; to start one is mostly waiting."""
        return 2 * (os.cpu_count() or 1) if self.size.is_short else 1

    def workspace(self, rows: int) -> Workspace:
        """One with so many samples; there is only one at a time, since all of it is in memory."""
        if self._workspace is None or self._workspace.rows != rows:
            self.forget()
            self._workspace = self._stack.enter_context(Workspace.made(rows))
        return self._workspace

    def arms(self, workspace: Workspace, *names: str) -> dict[str, Arm]:
        """These loaders, ready to read, with settings that are looked for once."""
        unknown = {name: _CANDIDATES[name] for name in names if name not in self._chosen}
        self._chosen |= self.fastest(workspace, unknown, self.reading(workspace), RATE)
        arms = {name: self._chosen[name] for name in names}
        workspace.prepare(arms.values())
        return arms

    def fastest(
        self,
        workspace: Workspace,
        candidates: Mapping[str, Sequence[Arm]],
        read: Read,
        rate: str,
    ) -> dict[str, Arm]:
        """Of each loader the fastest settings, or the first ones."""
        if self.size.is_short:
            candidates = {name: arms[:1] for name, arms in candidates.items()}
            workspace.prepare(arm for (arm,) in candidates.values())
            return {name: arm for name, (arm,) in candidates.items()}
        return fastest(workspace, candidates, read, rate)

    def reading(self, workspace: Workspace) -> Read:
        """From memory."""
        return partial(workspace.read, seconds=self.size.seconds)

    def in_turn(self, arms: Mapping[str, Arm], read: Read, rounds: int) -> Results:
        """Read with each arm, and again."""
        return in_turn(arms, read, rounds=rounds, at_once=self.at_once)


def _shuffle(bench: _Bench) -> list[Figure]:
    return figures_of_shuffling(short=bench.size.is_short)


def _loading(bench: _Bench) -> list[Figure]:
    """From memory, beside the peers; the node cache has no peer."""
    workspace = bench.workspace(bench.size.steady_rows)
    arms = bench.arms(workspace, "gathered", "carried", *PEERS)
    arms |= {"cached": _with(arms["gathered"], cache=True), "ceiling": CEILING}
    results = bench.in_turn(arms, bench.reading(workspace), bench.size.rounds)
    print_table(f"from memory, {workspace.rows:,} samples", arms, results)
    _print_distance(workspace, arms["gathered"], results)
    return [
        Figure(
            name=f"{ours}_to_peers",
            value=to_best_peer(results, ours, RATE),
            target=target,
            better="more",
        )
        for ours, target in (("gathered", 5.0), ("carried", 2.0))
    ]


def _with(arm: Arm, **settings: Any) -> Arm:
    return Arm(script=arm.script, settings={**arm.settings, **settings})


def _print_distance(workspace: Workspace, gathered: Arm, results: Results) -> None:
    """How far it is to the ceiling, and what the way is made of."""
    ratio(results, "gathered", "ceiling", RATE)
    total, ceiling = (
        median(each["cpu_us"] for each in results[name]) for name in ("gathered", "ceiling")
    )
    parts: dict[str, float] = workspace.run(gathered, "parts")
    decode, shelve, copy = parts["decode"], parts["shelve"], parts["copy"]
    print(
        f"CPU us/sample: ceiling {ceiling:.2f}; gathered {total:.2f}, of which reading and "
        f"decoding {decode:.2f} (digests {parts['digests']:.2f} of it), putting row groups side by "
        f"side {shelve:.2f}, copying {copy:.2f}, and the rest {total - decode - shelve - copy:.2f}",
        flush=True,
    )


def _wait(bench: _Bench) -> list[Figure]:
    """How long steps wait for their batch."""
    workspace = bench.workspace(bench.size.rows)
    arms = bench.arms(workspace, "gathered")
    found: dict[str, float] = workspace.run(arms["gathered"], "wait", steps=bench.size.steps)
    print(
        f"steps of {found['mock_s'] * 1e3:.3f} ms with batches at hand take "
        f"{found['real_s'] * 1e3:.3f} ms, of which {found['waited_s'] * 1e6:.1f} us is waiting",
        flush=True,
    )
    value = found["waited_s"] / _STEP_S
    return [Figure(name="data_wait", value=value, target=0.02, better="less")]


def _remote(bench: _Bench) -> list[Figure]:
    """Each time from an empty cache; with the time to the first batch, since all must begin."""
    candidates = {name: _in_sizes(arms) for name, arms in {"gathered": GATHERED, **PEERS}.items()}
    try:
        # Some peers take a minute for what is compared.
        with _remotely(bench, bench.size.rows) as (workspace, read):
            arms = bench.fastest(workspace, candidates, read, WHOLE_RATE)
        with _remotely(bench, bench.size.steady_rows) as (workspace, read):
            workspace.prepare(arms.values())
            results = bench.in_turn(arms, read, bench.size.rounds)
    except SetupError as error:
        print(f"no object store: {error}")
        return []
    title = f"from S3 with {_LATENCY_S * 1e3:.0f} ms, the first epoch of {workspace.rows:,} samples"
    print_table(title, arms, results)
    value = to_best_peer(results, "gathered", WHOLE_RATE)
    return [Figure(name="s3_to_peers", value=value, target=3.0, better="more")]


@contextmanager
def _remotely(bench: _Bench, rows: int) -> Iterator[tuple[Workspace, Read]]:
    """So many samples in a store, and what reads them once."""
    workspace = bench.workspace(rows)
    with served(workspace, latency_s=_LATENCY_S) as remote:
        yield workspace, partial(workspace.read, seconds=None, remote=remote)
    bench.forget()


def _in_sizes(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """Smaller files come sooner, and larger ones need fewer requests."""
    name = next(name for name in arms[0].settings if name.endswith("_mb"))
    sizes = dict.fromkeys((arms[0].settings[name], 8, 64))
    return tuple(_with(arm, **{name: megabytes}) for megabytes in sizes for arm in arms)


def _memory(bench: _Bench) -> list[Figure]:
    """Of the process that trains, above what it had before; more samples must not matter."""
    rows = bench.size.more_rows
    small, large = _peak_mb(bench, rows // 4), _peak_mb(bench, rows)
    print(
        f"memory of the gathering process: {small:.0f} MB, with four times as many samples "
        f"{large:.0f} MB",
        flush=True,
    )
    return [Figure(name="memory_growth", value=large / small, target=1.1, better="less")]


def _peak_mb(bench: _Bench, rows: int) -> float:
    workspace = bench.workspace(rows)
    arms = bench.arms(workspace, "gathered")
    results = bench.in_turn(arms, bench.reading(workspace), bench.size.rounds)
    return median(each["peak_mb"] for each in results["gathered"])


def _stock(bench: _Bench) -> list[Figure]:
    """
    On more samples: Ray Data takes long to begin an epoch, and then has much of it at hand.

    It is faster if it shuffles only files; beside it stands the same with its local shuffling.
    """
    workspace = bench.workspace(bench.size.more_rows)
    arms = bench.arms(workspace, "gathered", "carried", "stock")
    if not bench.size.is_short:
        arms["buffered"] = _with(arms["stock"], buffer=1000)
    results = bench.in_turn(arms, bench.reading(workspace), bench.size.rounds)
    print_table(f"from memory, {workspace.rows:,} samples", arms, results)
    return [
        Figure(
            name=f"{ours}_to_stock",
            value=ratio(results, ours, "stock", RATE),
            target=target,
            better="more",
        )
        for ours, target in (("gathered", 2.0), ("carried", 1.2))
    ]


def _resume(bench: _Bench) -> list[Figure]:
    """Where in an epoch one goes on must not matter; others read what comes before."""
    workspace, times = bench.workspace(bench.size.more_rows), bench.size.times
    arms = bench.arms(workspace, "gathered", "carried", "stock")
    runs = (
        ("gathered", "resume", times),
        ("carried", "resume", times),
        ("stock", "skip", max(times // 2, 1)),
    )

    def run(name: str, action: str, times: int) -> Any:
        return workspace.run(arms[name], action, times=times)

    with ThreadPoolExecutor(bench.at_once) as threads:
        gathered, carried, skipped = threads.map(run, *zip(*runs, strict=True))
    early, late = median(gathered["0.1"]), median(gathered["0.9"])
    print(
        f"first batch at 10 % and 90 % of {workspace.rows:,} samples: gathered {early:.3f} and "
        f"{late:.3f} s; carried {median(carried['0.1']):.3f} and {median(carried['0.9']):.3f} "
        f"s; Ray Data that reads up to 90 % {median(skipped):.3f} s",
        flush=True,
    )
    return [
        Figure(name="resume_late_to_early", value=late / early, target=1.2, better="less"),
        Figure(name="resume_to_reading", value=median(skipped) / late, target=10.0, better="more"),
    ]


# Those with the larger data set come last, since making it takes longest.
SECTIONS: dict[str, Callable[[_Bench], list[Figure]]] = {
    "shuffle": _shuffle,
    "loading": _loading,
    "wait": _wait,
    "remote": _remote,
    "memory": _memory,
    "stock": _stock,
    "resume": _resume,
}
