"""Compiling the programs of the cluster from the versions that ``go.mod`` files pin."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.commands import capture, run
from testbed.locks import locked
from testbed.paths import GO_MODULES, Paths
from testbed.requirements import check
from testbed.versions import required, sources

__all__ = ["Build", "build", "find_build"]

# Program, folder of its module, package. Each compiles alone: the largest needs 3 GB.
_PROGRAMS = (
    ("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    ("coredns", "coredns", "."),
    ("versitygw", "versitygw", "github.com/versity/versitygw/cmd/versitygw"),
    ("kuberay", "kuberay", "github.com/ray-project/kuberay/ray-operator"),
    ("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
    ("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"),
    ("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    ("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue"),
)
_OPERATORS = ("kuberay", "kueue")


@dataclass(frozen=True)
class Build:
    """
    Compiled programs, and the manifests that came with the sources of the operators.

    Attributes:
        folder: Named by a digest of what was compiled.
    """

    folder: Path

    @property
    def is_complete(self) -> bool:
        """Whether everything is there."""
        return (self.folder / "complete").exists()

    def program(self, name: str) -> Path:
        """An executable."""
        return self.folder / "bin" / name

    def manifests(self, operator: str) -> Path:
        """The ``config`` folder of an operator's module."""
        return self.folder / "manifests" / operator


def find_build(paths: Paths) -> Build:
    """Where the programs are, or will be, for the versions of this checkout."""
    digest = hashlib.sha256()
    for name, content in sources().items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    digest.update(repr((_PROGRAMS, _stamps())).encode())
    return Build(paths.cache / digest.hexdigest()[:16])


def build(paths: Paths) -> Build:
    """
    Compile what is not compiled yet.

    Raises:
        SetupError: If this machine cannot, or a compilation fails.
    """
    found = find_build(paths)
    if found.is_complete:
        return found
    check(paths, builds=True, runs=False)
    with locked(paths.lock("build")):
        if not found.is_complete:
            _build(found)
    return found


def _build(into: Build) -> None:
    (into.folder / "bin").mkdir(parents=True, exist_ok=True)
    for program, folder, package in _PROGRAMS:
        start = time.monotonic()
        _compile(into.program(program), folder, package)
        seconds = time.monotonic() - start
        print(f"compiled {program} in {seconds:.0f} s", file=sys.stderr, flush=True)
    for operator in _OPERATORS:
        _copy_manifests(operator, into.manifests(operator))
    (into.folder / "complete").touch()


def _compile(program: Path, folder: str, package: str) -> None:
    if program.exists():
        return
    flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in _stamps()[folder])])
    partial = program.with_suffix(".partial")
    run(
        *("go", "build", "-trimpath", "-ldflags", flags, "-o", partial, package),
        cwd=GO_MODULES / folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
    )
    partial.rename(program)


def _stamps() -> dict[str, list[tuple[str, str]]]:
    """Variables to set at link time, by folder: programs report the version they are."""
    version = required("kubernetes").version
    major, minor, _ = version.removeprefix("v").split(".", maxsplit=2)
    kubernetes = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    package = "k8s.io/component-base/version"
    return {
        "coredns": [],
        "etcd": [],
        "kuberay": [],
        "kubernetes": [(f"{package}.{name}", value) for name, value in kubernetes.items()],
        "kueue": [("sigs.k8s.io/kueue/pkg/version.GitVersion", required("kueue").version)],
        "versitygw": [],
    }


def _copy_manifests(operator: str, into: Path) -> None:
    module = required(operator).module
    asked = ("go", "list", "-m", "-f", "{{.Dir}}", module)
    source = Path(capture(*asked, cwd=GO_MODULES / operator).strip())
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(source / "config", into)
    for path in (into, *into.rglob("*")):  # the module cache is read-only
        path.chmod(path.stat().st_mode | 0o200)
