"""What a driver in a cluster sets before Ray reads it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from footplate.train.environment import cluster_environment, rank_environment


def test_what_is_set_wins() -> None:
    """The template and the spec know better."""
    ours = cluster_environment({})
    assert ours["RAY_DEDUP_LOGS"] == "0"
    assert "RAY_DEDUP_LOGS" not in cluster_environment({"RAY_DEDUP_LOGS": "1"})
    assert cluster_environment(ours) == {}


def test_the_package_of_the_driver_leaves_ray_alone() -> None:
    """Ray reads its environment when it is imported, and the driver is started as this package."""
    program = (
        "import json, sys, footplate.train.environment, footplate.train.__main__;"
        "print(json.dumps([m for m in ('ray', 'torch', 'mlflow') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    ("inherited", "cpus", "threads"),
    [({}, 7.5, "7"), ({}, 0.5, "1"), ({"OMP_NUM_THREADS": "3"}, 7.5, "3")],
)
def test_threads_of_a_rank(inherited: dict[str, str], cpus: float, threads: str) -> None:
    """As many as it has whole CPUs, as Ray would have it, unless the spec says how many."""
    assert rank_environment(inherited, cpus=cpus, on_node=1)["OMP_NUM_THREADS"] == threads
