"""
How long it takes from submission to the first training step, stage by stage.

The peer is the same training as a RayJob and a script that are written by hand. Both run on the
test cluster, one after the other: the same image, the same resources, through Kueue.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from figures import Figure
from footplate.cluster import POD, RAYJOB, WORKLOAD, Informer, Selection, connect
from start_arms import WORKERS, Arm, FirstStep, OfFootplate, Plain
from start_stages import STAGES, Stages
from testbed import NAMESPACE, Testbed, wait_until

__all__ = ["measure"]

_ROUNDS = 3
_TARGET = 0.75
_TIMEOUT_S = 300.0
_LOOK_S = 1.0
_REMOVAL_S = 120.0
# Of ten digits none is known yet.
_LOSS = math.log(10)


def measure(*, short: bool) -> list[Figure]:
    """Both in turn; the table has the medians."""
    testbed = Testbed.up()
    os.environ |= testbed.environment
    with tempfile.TemporaryDirectory(prefix="footplate-bench-") as folder:
        ours, peer = OfFootplate(testbed, Path(folder)), Plain(testbed)
        found: dict[str, list[Stages]] = {ours.name: [], peer.name: []}
        for arm in (ours, peer) * (1 if short else _ROUNDS):
            found[arm.name].append(_started(testbed, arm))
    medians = {name: _medians(runs) for name, runs in found.items()}
    _print_table(medians)
    ratio = medians[ours.name]["first step"] / medians[peer.name]["first step"]
    return [Figure(name="ratio", value=ratio, target=_TARGET, better="less")]


def _started(testbed: Testbed, arm: Arm) -> Stages:
    """Submit it, follow it to its first step, and remove it."""
    _remove(testbed, arm.name)
    load = os.getloadavg()[0]
    try:
        stages, step = _follow(testbed, arm)
        stages.read(arm.log())
    finally:
        _remove(testbed, arm.name)
    assert abs(step.loss - _LOSS) < 0.3, step
    took, after = stages.reached["first step"], os.getloadavg()[0]
    print(f"{arm.name}: first step after {took:.1f} s; load {load:.1f} to {after:.1f}", flush=True)
    return stages


def _follow(testbed: Testbed, arm: Arm) -> tuple[Stages, FirstStep]:
    cluster = connect(kubeconfig=str(testbed.kubeconfig), namespace=NAMESPACE)
    selections = [Selection(kind=kind) for kind in (RAYJOB, WORKLOAD, POD)]
    with Informer(cluster, selections) as informer, ThreadPoolExecutor(1) as threads:
        while not informer.is_synced:
            informer.changes(_LOOK_S)
        stages = Stages(arm.name, WORKERS, submitted=time.time())
        submission = threads.submit(arm.submit)
        looked = time.monotonic()
        while stages.age < _TIMEOUT_S:
            for change in informer.changes(_LOOK_S):
                stages.see(change, time.time())
            if submission.done():
                submission.result()
            if "RayJob running" in stages.reached and time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                if step := arm.first_step():
                    stages.reach("first step", step.time)
                    return stages, step
    raise AssertionError(f"{arm.name} has made no step: {stages.reached}\n{arm.log()[-4000:]}")


def _remove(testbed: Testbed, name: str) -> None:
    """The job with all its pods, and the code of the one that has it in a ConfigMap."""
    names = (f"rayjob/{name}", f"configmap/{name}")
    testbed.kubectl("delete", "-n", NAMESPACE, *names, "--ignore-not-found", "--wait=true")
    testbed.kubectl(
        *("delete", "pods", "-n", NAMESPACE, "--force", "--grace-period=0"),
        *("-l", f"ray.io/originated-from-cr-name={name}"),
    )
    wait_until(lambda: not _pods(testbed, name), _REMOVAL_S, f"the pods of {name} are gone")


def _pods(testbed: Testbed, name: str) -> list[str]:
    names = testbed.kubectl("get", "pods", "-n", NAMESPACE, "-o", "name").split()
    return [each for each in names if each.startswith(f"pod/{name}-")]


def _medians(runs: Sequence[Stages]) -> dict[str, float]:
    """Of each stage, those that have passed it."""
    return {
        stage: statistics.median(times)
        for stage in STAGES
        if (times := [run.reached[stage] for run in runs if stage in run.reached])
    }


def _print_table(medians: Mapping[str, Mapping[str, float]]) -> None:
    """When each stage was reached, and how long that took from the stage before."""
    print(f"{'seconds since submission':26}", *(f"{name:>22}" for name in medians))
    before = dict.fromkeys(medians, 0.0)
    for stage in STAGES:
        cells = []
        for name, reached in medians.items():
            when = reached.get(stage)
            cells.append("-" if when is None else f"{when:.1f}  +{when - before[name]:5.1f}")
            before[name] = before[name] if when is None else when
        print(f"{stage:26}", *(f"{cell:>22}" for cell in cells))
