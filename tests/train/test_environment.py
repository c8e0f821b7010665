"""What a driver sets before Ray reads it."""

from __future__ import annotations

import json
import subprocess
import sys

from footplate.processes import PURPOSE, RANK
from footplate.train.environment import (
    HEALTH_CHECK,
    RANKS_ON_NODE,
    cluster_environment,
    local_environment,
    rank_environment,
)


def test_what_is_set_wins() -> None:
    """The template and the spec know better, and so does who runs it here."""
    ours = cluster_environment({})
    assert ours["RAY_DEDUP_LOGS"] == "0"
    assert "RAY_DEDUP_LOGS" not in cluster_environment({"RAY_DEDUP_LOGS": "1"})
    assert cluster_environment(ours) == {}
    here = local_environment({})
    assert here[HEALTH_CHECK] == ours[HEALTH_CHECK]
    assert HEALTH_CHECK not in local_environment({HEALTH_CHECK: "9"})
    assert local_environment(here) == {}


def test_the_package_of_the_driver_leaves_ray_alone() -> None:
    """Ray reads its environment when it is imported, and the driver is started as this package."""
    program = (
        "import json, sys, footplate.train.environment, footplate.train.__main__;"
        "print(json.dumps([m for m in ('ray', 'torch', 'mlflow') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(done.stdout) == []


def test_ranks_keep_the_threads_of_their_pods() -> None:
    """How many those compute with is said where the pods are described, and there alone."""
    assert rank_environment(on_node=2) == {PURPOSE: RANK, RANKS_ON_NODE: "2"}
