"""KubeRay and Kueue: the manifests of their own modules, with images of what was compiled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from testbed.build import Build
from testbed.commands import capture, wait_until
from testbed.images import Directory, File, Image
from testbed.paths import Paths
from testbed.versions import required

__all__ = ["KUBERAY", "KUEUE", "Operator"]


@dataclass(frozen=True)
class Operator:
    """
    An operator that runs as a Deployment.

    Attributes:
        name: Of its program, of the folder of its module and of its image.
        namespace: Where it runs.
        deployment: As it is called in the end.
        images: What the manifests call its image.
        kustomize_name: Of the Deployment before kustomize gives it a prefix.
        overrides: Other keys of the kustomization.
    """

    name: str
    namespace: str
    deployment: str
    kustomize_name: str
    images: tuple[str, ...]
    overrides: dict[str, str] = field(default_factory=dict)

    @property
    def image(self) -> str:
        """Its image on the nodes, without the tag."""
        return f"localhost/footplate-testbed/{self.name}"

    @property
    def version(self) -> str:
        """Of its module, and the tag of its image."""
        return required(self.name).version

    def make_image(self, build: Build) -> Image:
        """An image that holds nothing but the program."""
        program = File(build.program(self.name).read_bytes(), mode=0o755)
        return Image(
            name=f"{self.image}:{self.version}",
            entries={"/manager": program, "/tmp": Directory(mode=0o1777)},  # noqa: S108
            entrypoint=("/manager",),
            user="65532",
        )

    def apply(self, paths: Paths, build: Build, kubectl: Callable[..., str], node: str) -> None:
        """
        Install it, on a node that is never killed.

        Args:
            node: The name of that node.
        """
        folder = paths.state / "operators" / self.name
        shutil.copytree(build.manifests(self.name), folder / "config")
        (folder / "kustomization.yaml").write_text(json.dumps(self._kustomization(node)))
        objects = capture(build.program("kubectl"), "kustomize", folder)
        # A CRD is too large for the annotation in which a client-side apply keeps a copy.
        kubectl("apply", "--server-side", "-f", "-", stdin=objects)

    def wait(self, kubectl: Callable[..., str]) -> None:
        """Wait until it works."""
        deployment = f"deployment/{self.deployment}"
        kubectl("rollout", "status", deployment, "-n", self.namespace, "--timeout=180s")

    def wait_for_pod(self, kubectl: Callable[..., str]) -> None:
        """Wait until its pod has been admitted."""
        get = ("get", "pods", "-n", self.namespace, "-o", "name")
        wait_until(lambda: kubectl(*get), 60, f"the pod of {self.name} exists")

    def _kustomization(self, node: str) -> dict[str, Any]:
        target = {"kind": "Deployment", "name": self.kustomize_name}
        return {
            **self.overrides,
            "resources": ["config/default"],
            "images": [
                {"name": image, "newName": self.image, "newTag": self.version}
                for image in self.images
            ],
            "patches": [{"target": target, "patch": json.dumps(_patch(node))}],
        }


KUBERAY = Operator(
    name="kuberay",
    namespace="ray-system",
    deployment="kuberay-operator",
    kustomize_name="kuberay-operator",
    images=("quay.io/kuberay/operator", "kuberay/operator"),
    overrides={"namespace": "ray-system"},
)
KUEUE = Operator(
    name="kueue",
    namespace="kueue-system",
    deployment="kueue-controller-manager",
    kustomize_name="controller-manager",
    images=("controller", "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue"),
)


def _patch(node: str) -> list[dict[str, Any]]:
    """Changes for a small machine, on which nothing else of the cluster's should starve."""
    container = "/spec/template/spec/containers/0"
    return [
        {"op": "replace", "path": f"{container}/imagePullPolicy", "value": "Never"},
        {"op": "replace", "path": f"{container}/resources", "value": {"requests": {"cpu": "10m"}}},
        {"op": "replace", "path": f"{container}/readinessProbe/initialDelaySeconds", "value": 1},
        {"op": "replace", "path": f"{container}/readinessProbe/periodSeconds", "value": 1},
        {
            "op": "add",
            "path": "/spec/template/spec/nodeSelector",
            "value": {"kubernetes.io/hostname": node},
        },
    ]
