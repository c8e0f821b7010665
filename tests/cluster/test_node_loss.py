"""A node that vanishes without a word: what is said of it, and what the guard does about it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from footplate import Phase, RunState
from footplate.store import Request, RunPaths, read_claims, to_json
from jobs import Jobs
from testbed import NAMESPACE, Node, Testbed, wait_until

pytestmark = pytest.mark.cluster

_GUARD = Path(__file__).resolve().parents[2] / "kuberay" / "guard"
_IN_ITS_NAMESPACE = ("-n", "footplate-system")
_START_S = 300.0
# The node is noticed after 16 s, its pods are given up 30 s later and end after their grace of
# 60 s; Ray takes more than a minute to believe that a silent node is dead.
_LOSS_S = 240.0


@pytest.fixture
def guard(testbed: Testbed) -> Iterator[None]:
    """The guard as a platform engineer installs it, with the permissions that it comes with."""
    testbed.kubectl("apply", "-k", str(_GUARD))
    testbed.kubectl(
        *_IN_ITS_NAMESPACE, "create", "secret", "generic", "footplate-guard-store",
        f"--from-literal=AWS_ACCESS_KEY_ID={testbed.s3.access_key}",
        f"--from-literal=AWS_SECRET_ACCESS_KEY={testbed.s3.secret_key}",
    )  # fmt: skip
    argument = {
        "op": "add",
        "path": "/spec/template/spec/containers/0/args/-",
        "value": f"--store-endpoint={testbed.s3.endpoint}",
    }
    testbed.kubectl(
        *_IN_ITS_NAMESPACE, "patch", "deployment", "footplate-guard",
        "--type=json", "-p", json.dumps([argument]),
    )  # fmt: skip
    yield
    testbed.kubectl("delete", "-k", str(_GUARD), "--wait")


def _is_training(state: RunState) -> bool:
    return state.phase is Phase.TRAINING and state.step > 20


@pytest.fixture
def lost(jobs: Jobs) -> Iterator[str]:
    """A job that trains on two nodes, of which one has just vanished; the name of that node."""
    try:
        with _kept_free(jobs.testbed, jobs.testbed.nodes[0]):
            _submit(jobs, "lost")
            jobs.wait_for("lost", _is_training, _START_S)
        (node,) = (node for node in jobs.testbed.nodes if node.name == _victim(jobs))
        node.kill()
        yield node.name
        node.restore()
    finally:
        jobs.delete("lost")


@contextmanager
def _kept_free(testbed: Testbed, node: Node) -> Iterator[None]:
    """Let no pod be placed on the node with the operators, which must stay."""
    testbed.kubectl("cordon", node.name)
    try:
        yield
    finally:
        testbed.kubectl("uncordon", node.name)


def _victim(jobs: Jobs) -> str:
    """A node that has a worker and no head."""
    pods = jobs.objects("pod", "footplate.dev/name=lost")
    nodes = {pod["metadata"]["labels"]["ray.io/node-type"]: set[str]() for pod in pods}
    for pod in pods:
        nodes[pod["metadata"]["labels"]["ray.io/node-type"]].add(pod["spec"]["nodeName"])
    return min(nodes["worker"] - nodes["head"])


def test_the_guard_does_what_no_operator_does(
    jobs: Jobs, lost: str, request: pytest.FixtureRequest
) -> None:
    """Without it the status says on what the run waits; with it the run goes on by itself."""
    said = jobs.wait_for("lost", lambda s: lost in s.reason and "guard" in s.reason, _LOSS_S)
    assert said.phase is Phase.TRAINING or said.phase is Phase.STARTING
    request.getfixturevalue("guard")
    state = jobs.wait_for("lost", lambda s: _is_training(s) and (s.attempt or 0) > 1, _LOSS_S)
    wait_until(lambda: _acts(jobs, "ReplacedLostPod"), 30, "the guard's event")
    _check_starts(jobs, state)


@pytest.mark.chaos
@pytest.mark.usefixtures("guard")
def test_who_asks_for_another_cluster_gets_one(jobs: Jobs) -> None:
    """A driver that can't use its RayCluster any more goes on in a new one."""
    try:
        _submit(jobs, "renewed")
        state = jobs.wait_for("renewed", _is_training, _START_S)
        _ask_for_another_cluster(jobs, state)
        newer = (state.attempt or 0) + 1
        jobs.wait_for("renewed", lambda s: _is_training(s) and s.attempt == newer, _START_S)
        assert _acts(jobs, "RenewedRayCluster")
        _check_starts(jobs, state)
    finally:
        jobs.delete("renewed")


def _submit(jobs: Jobs, name: str) -> None:
    """A job that has saved something before it counts as training, and lasts for long enough."""
    jobs.submit(
        "textlm", name, limits__max_steps=500, checkpoint__every="10 steps",
        evaluate__every="500 steps",
    )  # fmt: skip


def _check_starts(jobs: Jobs, state: RunState) -> None:
    """What was saved before the node was lost is gone on from, and what comes then likewise."""
    run = RunPaths(namespace=NAMESPACE, name=state.name, uid=state.uid)
    starts = [claim.start for claim in read_claims(jobs.store(), run)[1:]]
    steps = [start.step for start in starts if start is not None]
    assert len(steps) == len(starts) > 0
    assert steps == sorted(steps)
    assert steps[0] >= 10


def _ask_for_another_cluster(jobs: Jobs, state: RunState) -> None:
    """Write what a driver writes that can't use its RayCluster any more."""
    run = RunPaths(namespace=NAMESPACE, name=state.name, uid=state.uid)
    asked = Request(kind="new_cluster", reason="tried out", time=time.time())
    jobs.store().put(run.attempt(state.attempt or 0).request, to_json(asked))
    # Of a run that makes progress a guard reads no wish, but when it looks for the first time.
    jobs.testbed.kubectl(
        *_IN_ITS_NAMESPACE, "delete", "pod", "-l", "app.kubernetes.io/name=footplate-guard"
    )


def _acts(jobs: Jobs, reason: str) -> list[str]:
    return [each["message"] for each in jobs.objects("event") if each["reason"] == reason]
