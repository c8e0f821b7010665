"""All runs at one moment, as the API server tells of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from footplate.errors import AccessDeniedError
from footplate.runs.listing import list_runs
from footplate.runs.state import Phase
from playback import Playback, listing, status, write_kubeconfig

_JOBS = "GET /apis/ray.io/v1/namespaces/team/rayjobs"
_CLUSTERS = "GET /apis/ray.io/v1/namespaces/team/rayclusters"
_WORKLOADS = "GET /apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
_PODS = "GET /api/v1/namespaces/team/pods"


@pytest.fixture
def kubeconfig(server: Playback, tmp_path: Path) -> str:
    """The way to it."""
    return str(write_kubeconfig(tmp_path / "kubeconfig", server.url))


def _rayjob(name: str, created: str, ready: int) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "creationTimestamp": created,
    }
    status = {
        "jobDeploymentStatus": "Initializing",
        "rayClusterName": f"{name}-abcde",
        "rayClusterStatus": {"readyWorkerReplicas": ready},
    }
    return {"metadata": metadata, "spec": {}, "status": status}


def test_no_runs_are_one_request(server: Playback, kubeconfig: str) -> None:
    """Where there is nothing, nobody asks for its pods."""
    server.expect(_JOBS, listing(version="9"))
    assert list_runs(kubeconfig=kubeconfig, labels="owner=ada") == []
    assert server.queries(_JOBS)[0]["labelSelector"] == "footplate.dev/name,owner=ada"


def test_a_page_that_comes_too_late(server: Playback, kubeconfig: str) -> None:
    """The list is begun again when the server has forgotten the moment of its first page."""
    old = _rayjob("old", "2026-11-29T14:00:00Z", 0)
    new = _rayjob("new", "2026-11-29T15:00:00Z", 0)
    server.expect(
        _JOBS,
        listing(old, version="9", next_page="token"),
        status(410, "the token has expired", reason="Expired"),
        listing(old, new, version="12"),
    )
    for request in (_CLUSTERS, _WORKLOADS, _PODS):
        server.expect(request, listing(version="12"))
    assert [state.name for state in list_runs(kubeconfig=kubeconfig)] == ["new", "old"]


def test_what_may_not_be_read_is_left_out(server: Playback, kubeconfig: str) -> None:
    """RBAC refuses Workloads where there is no Kueue; RayJobs say most of it themselves."""
    server.expect(_JOBS, listing(_rayjob("digits", "2026-11-29T14:00:00Z", 2), version="9"))
    for request in (_CLUSTERS, _WORKLOADS, _PODS):
        server.expect(request, status(403, "is forbidden"))
    (state,) = list_runs(kubeconfig=kubeconfig)
    assert (state.phase, state.workers_ready) == (Phase.STARTING, 2)


def test_rayjobs_have_to_be_readable(server: Playback, kubeconfig: str) -> None:
    """Without them there is nothing to show, and an empty list would be a lie."""
    server.expect(_JOBS, status(403, 'User "jane" cannot list resource "rayjobs"'))
    with pytest.raises(AccessDeniedError):
        list_runs(kubeconfig=kubeconfig)
