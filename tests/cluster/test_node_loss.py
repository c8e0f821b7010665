"""A node that vanishes without a word: what is said of it, and what the guard does about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from footplate import Phase, RunState
from jobs import Jobs
from testbed import NAMESPACE, Testbed, wait_until

pytestmark = pytest.mark.cluster

_GUARD = Path(__file__).resolve().parents[2] / "kuberay" / "guard"
_START_S = 300.0
# The node is noticed after 16 s, its pods are given up 30 s later and end after their grace of
# 60 s; Ray takes more than a minute to believe that a silent node is dead.
_LOSS_S = 240.0


@pytest.fixture
def guard(testbed: Testbed) -> Iterator[None]:
    """The guard as a platform engineer installs it, with the permissions that it comes with."""
    testbed.kubectl("apply", "-k", str(_GUARD))
    yield
    testbed.kubectl("delete", "-k", str(_GUARD), "--wait")


def _is_training(state: RunState) -> bool:
    return state.phase is Phase.TRAINING and state.step > 20


@pytest.fixture
def lost(jobs: Jobs) -> Iterator[str]:
    """A job that trains on two nodes, of which one has just vanished; the name of that node."""
    jobs.submit(
        "textlm", "lost", limits__max_steps=300, checkpoint__every="10 steps",
        evaluate__every="300 steps",
    )  # fmt: skip
    jobs.wait_for("lost", _is_training, _START_S)
    (node,) = (node for node in jobs.testbed.nodes if node.name == _victim(jobs))
    node.kill()
    yield node.name
    node.restore()
    jobs.delete("lost")


def _victim(jobs: Jobs) -> str:
    """A node that has a worker and nothing that must stay: no operator, no head."""
    pods = jobs.objects("pod", "footplate.dev/name=lost")
    nodes = {pod["metadata"]["labels"]["ray.io/node-type"]: set[str]() for pod in pods}
    for pod in pods:
        nodes[pod["metadata"]["labels"]["ray.io/node-type"]].add(pod["spec"]["nodeName"])
    spared = {jobs.testbed.nodes[0].name, *nodes["head"]}
    return min(nodes["worker"] - spared)


def test_the_guard_ends_the_wait_for_a_lost_node(
    jobs: Jobs, lost: str, request: pytest.FixtureRequest
) -> None:
    """Without it the status says on what the run waits; with it the run goes on by itself."""
    said = jobs.wait_for("lost", lambda s: lost in s.reason and "guard" in s.reason, _LOSS_S)
    assert said.phase is Phase.TRAINING or said.phase is Phase.STARTING
    request.getfixturevalue("guard")
    jobs.wait_for("lost", lambda s: _is_training(s) and (s.attempt or 0) > 1, _LOSS_S)
    wait_until(lambda: _acts(jobs), 30, "the guard's event")
    jobs.run("wait", "lost", "-n", NAMESPACE, timeout_s=_START_S)


def _acts(jobs: Jobs) -> list[str]:
    events = jobs.objects("event")
    return [each["message"] for each in events if each["reason"] == "ReplacedLostPod"]
