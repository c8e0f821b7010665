"""The guard against the quota that a refused job holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from jobs import RECIPES, Jobs
from testbed import NAMESPACE, wait_until

pytestmark = pytest.mark.cluster

# KubeRay refuses it, and the API server and Kueue do not.
_NAME = "a-name-of-more-than-forty-seven-characters-which"


@pytest.fixture
def refused(jobs: Jobs) -> Iterator[str]:
    """A job that Kueue has let in and KubeRay will not run; its UID."""
    rendered = jobs.run("render", RECIPES / "digits.toml", *jobs.settings(), "-n", NAMESPACE)
    rayjob = next(yaml.safe_load_all(rendered.stdout))
    rayjob["metadata"]["name"] = _NAME
    jobs.testbed.kubectl("create", "-f", "-", stdin=yaml.safe_dump(rayjob))
    wait_until(lambda: _state(jobs) == "ValidationFailed", 60, "KubeRay refuses the job")
    uid: str = jobs.testbed.get("rayjob", _NAME, "-n", NAMESPACE)["metadata"]["uid"]
    wait_until(lambda: _holds_quota(jobs, uid), 60, "its quota is held")
    yield uid
    jobs.delete(_NAME)


def test_the_quota_of_a_refused_job_is_given_back(jobs: Jobs, refused: str) -> None:
    """Kueue would hold it for ever; the job itself stays, to be read."""
    assert "47 characters" in jobs.status(_NAME)["reason"]
    tried = jobs.start("guard", "-n", NAMESPACE, "--dry-run", kubeconfig=jobs.testbed.kubeconfig)
    try:
        assert tried.stdout is not None
        assert any(_NAME in line for line in tried.stdout)
    finally:
        tried.terminate()
        tried.communicate(timeout=30)
    assert _holds_quota(jobs, refused)
    guard = jobs.start("guard", "-n", NAMESPACE, kubeconfig=jobs.testbed.kubeconfig)
    try:
        wait_until(lambda: not _holds_quota(jobs, refused), 60, "its quota is given back")
        wait_until(lambda: _acts(jobs), 30, "the guard's event")
    finally:
        guard.terminate()
        guard.communicate(timeout=30)
    assert guard.returncode == 0
    assert _state(jobs) == "ValidationFailed"


def _state(jobs: Jobs) -> str:
    rayjob: dict[str, Any] = jobs.testbed.get("rayjob", _NAME, "-n", NAMESPACE)
    return str((rayjob.get("status") or {}).get("jobDeploymentStatus", ""))


def _holds_quota(jobs: Jobs, uid: str) -> bool:
    workloads = jobs.objects("workload", f"kueue.x-k8s.io/job-uid={uid}")
    return any(
        condition["type"] == "QuotaReserved" and condition["status"] == "True"
        for workload in workloads
        for condition in (workload.get("status") or {}).get("conditions") or []
    )


def _acts(jobs: Jobs) -> list[str]:
    return [each["message"] for each in jobs.objects("event") if each["reason"] == "ReleasedQuota"]
