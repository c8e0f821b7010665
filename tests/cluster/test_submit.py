"""Submitting against a real API server, KubeRay and Kueue; none of these jobs is let in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from jobs import RECIPES, Jobs
from relay import Relay
from testbed import NAMESPACE, wait_until

pytestmark = pytest.mark.cluster

_HELD = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: held}
spec:
  stopPolicy: Hold
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu, memory]
      flavors:
        - name: default
          resources: [{name: cpu, nominalQuota: "100"}, {name: memory, nominalQuota: 100Gi}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: held, namespace: team}
spec: {clusterQueue: held}
"""
_SMALL_PODS = """
apiVersion: v1
kind: LimitRange
metadata: {name: small-pods, namespace: team}
spec: {limits: [{type: Container, max: {memory: 1Gi}}]}
"""
# The RayJob tried out, one pod of each template, the RayJob, its ConfigMap.
_CALLS = [
    ("POST", f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayjobs"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods"),
    ("POST", f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayjobs"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps"),
]


@pytest.fixture(scope="module")
def jobs(jobs: Jobs) -> Iterator[Jobs]:
    """The command line, and a queue that lets nobody in."""
    jobs.testbed.kubectl("apply", "-f", "-", stdin=_HELD)
    yield jobs
    jobs.testbed.kubectl("-n", NAMESPACE, "delete", "rayjob", "-l", "footplate.dev/name", "--wait")
    jobs.testbed.kubectl("delete", "-f", "-", "--wait", stdin=_HELD)


def _arguments(jobs: Jobs, name: str, *more: str, **changes: object) -> list[object]:
    held = {"queue.name": "held", **changes}
    settings = jobs.settings(**{key.replace(".", "__"): value for key, value in held.items()})
    return [
        "submit",
        RECIPES / "digits.toml",
        "--set",
        f"name={name}",
        *settings,
        "-n",
        NAMESPACE,
        "-o",
        "json",
        *more,
    ]


def _is_queued(jobs: Jobs, name: str) -> bool:
    return bool(jobs.status(name)["phase"] == "queued")


def _assert_one_job(jobs: Jobs, name: str) -> str:
    """There is one RayJob of that name, with the identity of this very one; its UID."""
    (rayjob,) = jobs.objects("rayjob", f"footplate.dev/name={name}")
    (identity,) = jobs.objects("configmap", f"footplate.dev/name={name}")
    uid: str = rayjob["metadata"]["uid"]
    assert [owner["uid"] for owner in identity["metadata"]["ownerReferences"]] == [uid]
    assert json.loads(identity["data"]["job.json"])["uid"] == uid
    return uid


def test_makes_no_more_calls_than_it_needs(jobs: Jobs, tmp_path: Path) -> None:
    """Each call is a second of somebody's life in a slow network."""
    with Relay(jobs.kubeconfig, tmp_path) as relay:
        jobs.run(*_arguments(jobs, "count"), kubeconfig=relay.kubeconfig)
    assert relay.requests == _CALLS
    _assert_one_job(jobs, "count")


@pytest.mark.parametrize("call", range(1, len(_CALLS) + 1))
@pytest.mark.parametrize("fate", ["drop", "swallow"])
def test_a_lost_request_leaves_one_job(jobs: Jobs, tmp_path: Path, call: int, fate: str) -> None:
    """Whichever request or answer the network loses, the command still makes exactly one job."""
    name = f"lost-{fate}-{call}"
    with Relay(jobs.kubeconfig, tmp_path, lambda n: fate if n == call else "pass") as relay:
        done = jobs.run(*_arguments(jobs, name), kubeconfig=relay.kubeconfig)
    assert json.loads(done.stdout)["uid"] == _assert_one_job(jobs, name)


@pytest.mark.parametrize("call", range(1, len(_CALLS) + 1))
def test_a_killed_client_is_repeated(jobs: Jobs, tmp_path: Path, call: int) -> None:
    """Killed after any of its calls and run again, it has made one job, with its identity."""
    name = f"killed-{call}"
    with Relay(jobs.kubeconfig, tmp_path, lambda n: "hold" if n == call else "pass") as relay:
        client = jobs.start(*_arguments(jobs, name), kubeconfig=relay.kubeconfig)
        try:
            assert relay.held.wait(60)
        finally:
            client.kill()
            client.communicate()
    before = jobs.objects("rayjob", f"footplate.dev/name={name}")
    done = jobs.run(*_arguments(jobs, name))
    uid = _assert_one_job(jobs, name)
    assert json.loads(done.stdout)["uid"] == uid
    assert [each["metadata"]["uid"] for each in before] in ([], [uid])


def test_half_made_is_shown_as_such(jobs: Jobs, tmp_path: Path) -> None:
    """Without its identity a job says that its submission was interrupted, and what to do."""
    with Relay(jobs.kubeconfig, tmp_path, lambda n: "hold" if n == 4 else "pass") as relay:
        client = jobs.start(*_arguments(jobs, "half"), kubeconfig=relay.kubeconfig)
        try:
            assert relay.held.wait(60)
        finally:
            client.kill()
            client.communicate()
    assert jobs.status("half")["phase"] == "incomplete"
    wait_until(
        lambda: "footplate submit" in jobs.status("half")["reason"], 60, "the interruption is said"
    )


def test_another_spec_changes_nothing_unless_told(jobs: Jobs) -> None:
    """The same name with another spec is refused with what differs; --replace is the word."""
    jobs.run(*_arguments(jobs, "twice"))
    uid = _assert_one_job(jobs, "twice")
    refused = jobs.run(*_arguments(jobs, "twice", seed=1), code=6)
    assert "another spec" in refused.stderr
    assert "nothing was changed" in refused.stderr
    assert _assert_one_job(jobs, "twice") == uid
    again = jobs.run(*_arguments(jobs, "twice"))
    assert json.loads(again.stdout)["uid"] == uid
    replaced = jobs.run(*_arguments(jobs, "twice", "--replace", seed=1))
    assert json.loads(replaced.stdout)["uid"] == _assert_one_job(jobs, "twice") != uid


def test_two_clients_at_once_make_one_job(jobs: Jobs) -> None:
    """A race between two terminals has one winner, and both are told its UID."""
    clients = [jobs.start(*_arguments(jobs, "race")) for _ in range(2)]
    said = [client.communicate(timeout=60) for client in clients]
    assert [client.returncode for client in clients] == [0, 0], said
    uids = {json.loads(out)["uid"] for out, _ in said}
    assert uids == {_assert_one_job(jobs, "race")}


def test_what_no_pod_may_be_is_refused_at_once(jobs: Jobs) -> None:
    """A pod of each template is judged before anything is queued, or gives way to it."""
    jobs.run(*_arguments(jobs, "there"))
    uid = _assert_one_job(jobs, "there")
    jobs.testbed.kubectl("apply", "-f", "-", stdin=_SMALL_PODS)
    try:
        refused = jobs.run(*_arguments(jobs, "large"), code=2)
        jobs.run(*_arguments(jobs, "there", "--replace", seed=1), code=2)
    finally:
        jobs.testbed.kubectl("delete", "-f", "-", stdin=_SMALL_PODS)
    assert "maximum memory usage per Container is 1Gi" in refused.stderr
    assert not jobs.objects("rayjob", "footplate.dev/name=large")
    assert _assert_one_job(jobs, "there") == uid


def test_a_namespace_that_is_not_there_is_named(jobs: Jobs) -> None:
    """A typo in -n is said in a sentence."""
    arguments = _arguments(jobs, "nowhere")
    arguments[arguments.index(NAMESPACE)] = "nowhere"
    refused = jobs.run(*arguments, code=18)
    assert "nowhere" in refused.stderr


def test_a_held_queue_is_said(jobs: Jobs) -> None:
    """A job that waits says on what, and a wait for it ends when its time is over."""
    jobs.run(*_arguments(jobs, "waits"))
    wait_until(lambda: jobs.status("waits")["phase"] == "queued", 30, "the job is queued")
    assert "held" in jobs.status("waits")["reason"]
    waited = jobs.run("wait", "waits", "-n", NAMESPACE, "--timeout", "2s", code=124)
    assert "held" in waited.stderr


def test_who_is_ahead_is_named(jobs: Jobs) -> None:
    """Whoever waits sees for whom."""
    full = _HELD.replace("held", "full").replace("stopPolicy: Hold", "stopPolicy: None")
    jobs.testbed.kubectl("apply", "-f", "-", stdin=full.replace('"100"', '"0"'))
    try:
        for name in ("first", "second"):
            jobs.run(*_arguments(jobs, name, **{"queue.name": "full"}))
            wait_until(partial(_is_queued, jobs, name), 30, f"{name} is queued")
        wait_until(
            lambda: jobs.status("second")["reason"].endswith("behind first"), 30, "its place"
        )
    finally:
        jobs.delete("first", "second")
        jobs.testbed.kubectl("delete", "-f", "-", "--wait", stdin=full)


def test_a_deleted_job_ends_a_wait(jobs: Jobs, tmp_path: Path) -> None:
    """Somebody else's delete is an end with an exit code of its own."""
    jobs.run(*_arguments(jobs, "gone"))
    with Relay(jobs.kubeconfig, tmp_path) as relay:
        waiting = jobs.start("wait", "gone", "-n", NAMESPACE, kubeconfig=relay.kubeconfig)
        wait_until(lambda: len(relay.watches) >= 4, 30, "the job is watched")
        jobs.run("delete", "gone", "-n", NAMESPACE)
        _, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 21
    assert "deleted" in err


def test_suspended_by_its_user_is_shown_as_such(jobs: Jobs) -> None:
    """A queued job can be taken out of its queue and put back; who did it is shown."""
    jobs.run(*_arguments(jobs, "paused"))
    wait_until(lambda: jobs.status("paused")["phase"] == "queued", 30, "the job is queued")
    jobs.run("suspend", "paused", "-n", NAMESPACE)
    wait_until(lambda: jobs.status("paused")["phase"] == "suspended", 30, "it is suspended")
    assert "footplate resume paused" in jobs.status("paused")["reason"]
    jobs.run("resume", "paused", "-n", NAMESPACE)
    wait_until(lambda: jobs.status("paused")["phase"] == "queued", 30, "it is queued again")


def test_deactivated_by_somebody_else_ends_a_wait(jobs: Jobs) -> None:
    """What Kueue or an administrator takes out of the queue is not waited for in vain."""
    uid = json.loads(jobs.run(*_arguments(jobs, "evicted")).stdout)["uid"]
    wait_until(lambda: jobs.status("evicted")["phase"] == "queued", 30, "the job is queued")
    (workload,) = jobs.objects("workload", f"kueue.x-k8s.io/job-uid={uid}")
    jobs.testbed.kubectl(
        "-n", NAMESPACE, "patch", "workload", workload["metadata"]["name"],
        "--type=merge", "-p", '{"spec": {"active": false}}',
    )  # fmt: skip
    waited = jobs.run("wait", "evicted", "-n", NAMESPACE, code=22)
    assert "deactivated" in waited.stderr
