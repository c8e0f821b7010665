"""One run that is watched, loses its machines in every way, is paused, and is cancelled."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from dashboard_check import check_dashboard
from footplate import Phase
from footplate.checkpoints import counting
from footplate.errors import FencedError, PreemptedError
from footplate.store import (
    AttemptResult,
    CheckpointName,
    Claim,
    RunPaths,
    read_claims,
    read_record_if_there,
)
from footplate.tracking import MetricPoint, MetricReader
from jobs import Jobs
from rank_processes import is_rank
from testbed import NAMESPACE, QUEUE, Testbed, wait_until

pytestmark = pytest.mark.cluster

_NAME = "taken"
_URGENT = "urgent"
# From a fault to the first new step, on a machine of two cores that does all of it.
_START_S = 240.0
# Ray's drain, the rest of the pods' grace period, and what their nodes need to clear up.
_LEAVE_S = 90.0
# In that time it makes many steps: whoever repeats few has saved for another reason.
_EVERY = "5s"
_FEW_STEPS = 5


class TakenRun:
    """The run, as its store and its user see it."""

    def __init__(self, jobs: Jobs, uid: str) -> None:
        self._jobs = jobs
        self._store = jobs.store()
        self.uid = uid
        self.paths = RunPaths(namespace=NAMESPACE, name=_NAME, uid=uid)

    @property
    def claims(self) -> list[Claim]:
        """Of all attempts, oldest first."""
        return read_claims(self._store, self.paths)

    @property
    def newest(self) -> Claim:
        """Of the attempt that trains, once it does."""
        return self.trains(self.claims[-1].attempt)

    def points(self, claim: Claim) -> list[MetricPoint]:
        """All steps that an attempt has made, also those that do not count."""
        reader = MetricReader(self._store, self.paths)
        chunks = list(reader.read([claim]))
        return [point for chunk in chunks for point in chunk if "loss" in point.metrics]

    def losses(self, claim: Claim) -> dict[int, float]:
        """Of those steps."""
        return {point.step: point.metrics["loss"] for point in self.points(claim)}

    def late(self, claim: Claim, claimed: float) -> list[int]:
        """Steps that an attempt has made after the next one was claimed."""
        return [p.step for p in self.points(claim) if p.time_ms / 1000 > claimed]

    def result(self, claim: Claim) -> AttemptResult | None:
        """How an attempt ended; None if it was killed."""
        return read_record_if_there(
            self._store, self.paths.attempt(claim.attempt).result, AttemptResult
        )

    def saved(self, claim: Claim) -> list[CheckpointName]:
        """What an attempt has saved that counts."""
        found = counting(self._store, self.paths)
        return [name for name in found if name.attempt == claim.attempt]

    def checkpoints(self) -> dict[CheckpointName, dict[str, Any]]:
        """What ``footplate checkpoints list`` says."""
        listed = self._jobs.run("checkpoints", "list", _NAME, "-n", NAMESPACE, "-o", "json")
        found = {CheckpointName.parse(each["name"]): each for each in json.loads(listed.stdout)}
        return {name: each for name, each in found.items() if name is not None}

    def pods(self, kind: Literal["head", "worker"] | None = None) -> list[str]:
        """Names of its pods."""
        labels = f"footplate.dev/name={_NAME}" + (f",ray.io/node-type={kind}" if kind else "")
        return [pod["metadata"]["name"] for pod in self._jobs.objects("pod", labels)]

    def trains(self, attempt: int) -> Claim:
        """Wait until this attempt makes steps, and no other one was made meanwhile."""
        self._jobs.wait_for(
            _NAME,
            lambda s: s.phase is Phase.TRAINING and s.attempt == attempt and self._steps() > 0,
            _START_S,
        )
        newest = self.claims[-1]
        assert newest.attempt == attempt
        return newest

    def _steps(self) -> int:
        return len(self.points(self.claims[-1]))

    def goes_on(self, before: Claim) -> tuple[Claim, CheckpointName, int]:
        """
        Wait until the next attempt is farther than the one before it has been.

        What both have done came to the same, bit for bit.

        Returns:
            The next attempt, what it has started from, and how many steps it had to repeat.
        """
        after = self.trains(before.attempt + 1)
        start = after.start
        assert start is not None
        old = self.losses(before)
        last = max(old)
        wait_until(
            lambda: max(self.losses(after)) > last, _START_S, f"beyond step {last}", every_s=1
        )
        new = self.losses(after)
        assert list(new) == list(range(start.step + 1, max(new) + 1))
        repeated = {step: loss for step, loss in old.items() if step > start.step}
        assert repeated == {step: new[step] for step in repeated}
        print(f"attempt {after.attempt} goes on from {start} and repeats {len(repeated)} steps")
        return after, start, len(repeated)


@pytest.fixture(scope="module")
def run(jobs: Jobs) -> Iterator[TakenRun]:
    """A run that goes on for as long as tests do something to it."""
    uid = jobs.submit(
        "textlm", _NAME, queue__priority="low", checkpoint__every=_EVERY,
        limits__max_steps=100_000, evaluate__every="100000 steps",
    )  # fmt: skip
    taken = TakenRun(jobs, uid)
    try:
        taken.trains(1)
        yield taken
    finally:
        jobs.delete(_NAME)


@pytest.fixture
def urgent(testbed: Testbed) -> Iterator[None]:
    """Something of a higher priority, for which the queue has no room beside the run."""
    testbed.kubectl("apply", "-f", "-", stdin=json.dumps(_urgent_job()))
    yield
    _end_urgent_job(testbed)


def _end_urgent_job(testbed: Testbed) -> None:
    testbed.kubectl("-n", NAMESPACE, "delete", "job", _URGENT, "--ignore-not-found", "--wait")


def _urgent_job() -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "localhost/footplate-torch:1",
        "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": "10m", "memory": "3Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
    }
    labels = {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/priority-class": "high"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": _URGENT, "namespace": NAMESPACE, "labels": labels},
        "spec": {"parallelism": 3, "completions": 3, "suspend": True, "template": {"spec": pod}},
    }


def test_it_is_seen_on_the_dashboard(jobs: Jobs, run: TakenRun, tmp_path: Path) -> None:
    """A browser without any token shows it running."""
    assert run.newest.attempt == 1
    check_dashboard(jobs.testbed, NAMESPACE, _NAME, tmp_path / "dashboard.png")


def test_a_higher_priority_takes_its_quota(
    jobs: Jobs, run: TakenRun, request: pytest.FixtureRequest
) -> None:
    """It is told in time, saves, leaves, waits in the queue, and goes on without a word."""
    before = run.newest
    request.getfixturevalue("urgent")
    jobs.wait_for(_NAME, lambda s: "preempted by another workload" in s.reason, 60)
    wait_until(lambda: not run.pods(), _LEAVE_S, "its pods are gone")
    wait_until(lambda: _urgent_pods(jobs), 60, "what is urgent runs")
    assert jobs.status(_NAME)["phase"] == Phase.QUEUED
    _end_urgent_job(jobs.testbed)

    after, start, repeated = run.goes_on(before)

    assert after.cluster != before.cluster
    _assert_left_in_time(run, before, start)
    assert repeated <= _FEW_STEPS


def _urgent_pods(jobs: Jobs) -> list[str]:
    pods = jobs.objects("pod", f"job-name={_URGENT}")
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]


def _assert_left_in_time(run: TakenRun, before: Claim, start: CheckpointName) -> None:
    """What is known of an attempt whose machines were taken away with notice."""
    assert start.attempt == before.attempt
    assert run.checkpoints()[start]["manifest"]["reason"] == "preemption"
    result = run.result(before)
    assert result is not None
    assert result.failure is not None
    assert result.failure.category == PreemptedError.category, result.failure.message
    assert result.goes_on


def test_two_attempts_at_once(jobs: Jobs, run: TakenRun) -> None:
    """
    One that hangs while the next one begins is too late for whatever it does.

    Under Kueue a patch of ``spec.suspend`` is a restart: the old pods live on beside the new ones.
    """
    before = run.newest
    wait_until(lambda: run.saved(before), 60, "it has saved", every_s=1)
    pods, held, ranks = set(run.pods()), _pods_of_ray(), _ranks()
    assert (len(held), len(ranks)) == (3, 2)
    with _nobody_ends(held):
        for rank in ranks:
            rank.suspend()
        jobs.testbed.kubectl(
            "-n", NAMESPACE, "patch", "rayjob", _NAME, "--type=merge", "-p",
            '{"spec":{"suspend":true}}',
        )  # fmt: skip
        wait_until(lambda: run.claims[-1] != before, _START_S, "the next attempt is claimed")
        claimed = run.claims[-1].claimed
        for rank in ranks:
            rank.resume()
        wait_until(lambda: run.late(before, claimed), _LEAVE_S, "the old one does something")
    wait_until(lambda: pods.isdisjoint(run.pods()), _LEAVE_S, "the old pods are gone")

    after, start, _ = run.goes_on(before)

    assert start.step < min(run.late(before, after.claimed))
    result = run.result(before)
    assert result is None or (result.failure and result.failure.error == FencedError.__name__)
    _assert_nothing_counts(run, before, beyond=start.step)


def _ranks() -> list[psutil.Process]:
    """The training processes in pods, as this machine sees them."""
    return [each for each in psutil.process_iter() if is_rank(each) and _shim(each)]


def _pods_of_ray() -> list[psutil.Process]:
    """What holds the containers of all pods with Ray in them, one process a pod."""
    raylets = (each for each in psutil.process_iter(["name"]) if each.info["name"] == "raylet")
    shims = {_shim(each) for each in raylets}
    return [shim for shim in shims if shim is not None]


def _shim(process: psutil.Process) -> psutil.Process | None:
    """What holds the container that a process is in."""
    with suppress(psutil.NoSuchProcess):
        for parent in process.parents():
            if parent.name().startswith("containerd-shim"):
                return parent
    return None


@contextmanager
def _nobody_ends(shims: Sequence[psutil.Process]) -> Iterator[None]:
    """Keep what is in pods alive, as on a node whose container runtime hangs."""
    for shim in shims:
        shim.suspend()
    try:
        yield
    finally:
        for shim in shims:
            shim.resume()


def _assert_nothing_counts(run: TakenRun, claim: Claim, *, beyond: int) -> None:
    late = {
        name: each["state"]
        for name, each in run.checkpoints().items()
        if name.attempt == claim.attempt and name.step > beyond
    }
    assert set(late.values()) <= {"incomplete", "not counted"}, late


def test_the_head_is_drained(jobs: Jobs, run: TakenRun) -> None:
    """The ranks learn from the driver that its pod ends, though theirs stay."""
    before = run.newest
    (head,) = run.pods("head")
    jobs.testbed.kubectl("-n", NAMESPACE, "delete", "pod", head, "--wait=false")

    after, start, repeated = run.goes_on(before)

    assert after.cluster == before.cluster
    _assert_left_in_time(run, before, start)
    assert repeated <= _FEW_STEPS


def test_the_head_is_lost(jobs: Jobs, run: TakenRun) -> None:
    """Without notice it goes on from what was saved last by the clock."""
    before = run.newest
    wait_until(lambda: run.saved(before), 60, "it has saved", every_s=1)
    (head,) = run.pods("head")
    jobs.testbed.kubectl("-n", NAMESPACE, "delete", "pod", head, "--force", "--grace-period=0")

    _, start, _ = run.goes_on(before)

    assert start == run.saved(before)[-1]
    assert run.checkpoints()[start]["manifest"]["reason"] == "interval"
    assert run.result(before) is None
    _assert_nothing_counts(run, before, beyond=start.step)


def test_a_pause(jobs: Jobs, run: TakenRun) -> None:
    """Suspended it saves and gives its machines back, resumed it goes on, with other ones."""
    before = run.newest
    jobs.run("suspend", _NAME, "-n", NAMESPACE)
    jobs.wait_for(_NAME, lambda s: s.phase in (Phase.SUSPENDING, Phase.SUSPENDED), 30)
    wait_until(lambda: not jobs.objects("raycluster"), _LEAVE_S, "the RayCluster is gone")
    jobs.run("resume", _NAME, "-n", NAMESPACE)

    after, start, repeated = run.goes_on(before)

    assert after.cluster != before.cluster
    assert start.attempt == before.attempt
    assert repeated <= _FEW_STEPS


def test_cancelled_it_is_one_run(jobs: Jobs, run: TakenRun) -> None:
    """
    Each step counts once, in one run of MLflow, and each fault has cost one attempt.

    Whoever waits is told of the cancellation, MLflow has it as ended by its user, and nothing of
    it stays in the cluster.
    """
    waiting = jobs.start("wait", _NAME, "-n", NAMESPACE)
    jobs.run("cancel", _NAME, "-n", NAMESPACE, timeout_s=150)
    _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 20, said
    tracked = jobs.mlflow_run(run.uid)
    assert tracked.info.status == "KILLED"
    result = run.result(run.claims[-1])
    assert result is not None
    assert jobs.history(tracked, "loss") == list(range(1, result.steps + 1))
    assert [claim.attempt for claim in run.claims] == [1, 2, 3, 4, 5, 6]
    assert run.saved(run.claims[-1])[-1].step == result.steps
    jobs.assert_nothing_is_left(_NAME)
