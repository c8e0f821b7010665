"""The objects that a platform engineer applies: complete, consistent, and no more than needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from footplate.cli.guard import command
from footplate.cluster import CLUSTER_QUEUE, LOCAL_QUEUE, NODE, WORKLOAD
from footplate.runtimes import find_runtime

_ROOT = Path(__file__).parents[2] / "kuberay"
_FOLDERS = ("guard", "queues", "rbac")
_READ = {"get", "list", "watch"}


def _objects(folder: str) -> list[dict[str, Any]]:
    """Every object of a folder, those of examples included."""
    return [
        obj
        for path in sorted((_ROOT / folder).glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for obj in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def _of_kind(kind: str) -> list[dict[str, Any]]:
    return [obj for folder in _FOLDERS for obj in _objects(folder) if obj["kind"] == kind]


def _named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (obj for obj in _of_kind(kind) if obj["metadata"]["name"] == name)
    return found


def _granted(role: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Group, resource and verb of all that a role allows."""
    for rule in role["rules"]:
        assert set(rule) == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])


@pytest.mark.parametrize("folder", _FOLDERS)
def test_a_kustomization_lists_its_folder(folder: str) -> None:
    """What is there is applied, except what is called an example."""
    path = _ROOT / folder / "kustomization.yaml"
    listed = yaml.safe_load(path.read_text(encoding="utf-8"))["resources"]
    there = {file.name for file in path.parent.glob("*.yaml")} - {path.name}
    assert set(listed) == {name for name in there if not name.startswith("example-")}
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("folder", _FOLDERS)
def test_objects_are_complete(folder: str) -> None:
    """Each is named once, and those of Kueue are of the version that the code speaks."""
    objects = _objects(folder)
    names = [(obj["kind"], obj["metadata"]["name"]) for obj in objects]
    assert len(names) == len(set(names))
    for obj in objects:
        if obj["apiVersion"].startswith(WORKLOAD.group):
            assert obj["apiVersion"] == WORKLOAD.api_version


@pytest.mark.parametrize("role", _of_kind("ClusterRole"), ids=lambda role: role["metadata"]["name"])
def test_roles_say_what_they_allow(role: dict[str, Any]) -> None:
    """No wildcard, nothing twice, nothing in an order that hides what is there."""
    granted = list(_granted(role))
    assert not [one for one in granted if "*" in one]
    assert len(granted) == len(set(granted))
    for rule in role["rules"]:
        assert rule["verbs"] == sorted(rule["verbs"])


WRITES = {
    "footplate-user": {
        ("ray.io", "rayjobs", "create"),
        ("ray.io", "rayjobs", "delete"),
        ("ray.io", "rayjobs", "patch"),
        ("", "configmaps", "create"),
        ("", "configmaps", "delete"),
        ("", "pods", "create"),  # the dry run of the pod templates
        ("kueue.x-k8s.io", "workloads", "patch"),
    },
    "footplate-dashboard": {("", "pods/portforward", "create")},
    "footplate-cluster-reader": set(),
}


@pytest.mark.parametrize("name", WRITES)
def test_clients_write_what_they_must(name: str) -> None:
    """Everything beyond reading is named here, so that a new permission is a decision."""
    granted = set(_granted(_named("ClusterRole", name)))
    assert {one for one in granted if one[2] not in _READ} == WRITES[name]


def test_secrets_are_for_the_dashboard_alone() -> None:
    """Who submits runs cannot read what they are given; nobody can list it."""
    found = {
        (role["metadata"]["name"], verb)
        for role in _of_kind("ClusterRole")
        for _, resource, verb in _granted(role)
        if resource == "secrets"
    }
    assert found == {("footplate-dashboard", "get")}


def test_the_user_role_works_in_a_namespace() -> None:
    """A RoleBinding cannot give what is in no namespace, so nothing of it may be needed."""
    outside = {(kind.group, kind.plural) for kind in (CLUSTER_QUEUE, NODE)}
    for name in ("footplate-user", "footplate-dashboard"):
        granted = _granted(_named("ClusterRole", name))
        assert not {(group, resource) for group, resource, _ in granted} & outside


def test_bindings_bind_what_is_there() -> None:
    """A binding to a role or an account of another name gives nobody anything, and is silent."""
    roles = {role["metadata"]["name"] for role in _of_kind("ClusterRole")}
    accounts = {
        (one["metadata"]["namespace"], one["metadata"]["name"])
        for one in _of_kind("ServiceAccount")
    }
    bindings = _of_kind("RoleBinding") + _of_kind("ClusterRoleBinding")
    assert {binding["roleRef"]["name"] for binding in bindings} == roles
    for binding in bindings:
        assert binding["roleRef"]["kind"] == "ClusterRole"
        for subject in binding["subjects"]:
            if subject["kind"] == "ServiceAccount":
                assert (subject["namespace"], subject["name"]) in accounts


@pytest.fixture
def deployment() -> dict[str, Any]:
    """The guard's."""
    return _named("Deployment", "footplate-guard")


@pytest.fixture
def pod(deployment: dict[str, Any]) -> dict[str, Any]:
    """The spec of its pod."""
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def test_the_guard_passes_the_restricted_standard(pod: dict[str, Any]) -> None:
    """Its own namespace enforces it: a pod that violates it never starts."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)
    for volume in pod["volumes"]:
        assert set(volume) == {"name", "emptyDir"}
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not any("hostPort" in port for port in container["ports"])
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
    labels = _named("Namespace", "footplate-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_guard_is_one(deployment: dict[str, Any]) -> None:
    """The old one ends before the new one starts, and it finds its own pods again."""
    spec = deployment["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    selected = spec["selector"]["matchLabels"].items()
    assert selected <= spec["template"]["metadata"]["labels"].items()


def test_the_guard_starts(pod: dict[str, Any]) -> None:
    """With options that it has, as its own account, and asked for its health where it answers."""
    (container,) = pod["containers"]
    assert container["command"] == ["footplate", "guard"]
    options = command.make_context("guard", list(container["args"])).params
    assert options["all_namespaces"] is True
    assert options["store_endpoints"] == ()  # nobody else's choice
    (port,) = container["ports"]
    assert options["health_port"] == port["containerPort"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert container["image"] == find_runtime("torch@1").image
    assert pod["automountServiceAccountToken"] is True
    assert _named("ServiceAccount", pod["serviceAccountName"])
    # Without credentials for stores it does all that needs none.
    assert [source["secretRef"]["optional"] for source in container["envFrom"]] == [True]


def test_queues_lead_to_flavors() -> None:
    """The example is one that admits a run: from the LocalQueue to flavors with quota for it."""
    flavors = {flavor["metadata"]["name"] for flavor in _of_kind("ResourceFlavor")}
    used = set()
    for queue in _of_kind(LOCAL_QUEUE.kind):
        target = _named(CLUSTER_QUEUE.kind, queue["spec"]["clusterQueue"])
        chosen = target["spec"]["namespaceSelector"]["matchLabels"]
        assert chosen == {"kubernetes.io/metadata.name": queue["metadata"]["namespace"]}
        for group in target["spec"]["resourceGroups"]:
            for flavor in group["flavors"]:
                used.add(flavor["name"])
                named = [resource["name"] for resource in flavor["resources"]]
                assert named == group["coveredResources"]  # Kueue wants the same order
    assert used == flavors
