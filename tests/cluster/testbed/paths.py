"""Where the test cluster of a checkout lives, and what it is called."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CHECKOUT", "GO_MODULES", "MANIFESTS", "Paths"]

CHECKOUT = Path(__file__).resolve().parents[3]
GO_MODULES = CHECKOUT / "tests" / "cluster" / "go"
MANIFESTS = Path(__file__).resolve().parent / "manifests"


@dataclass(frozen=True)
class Paths:
    """
    The folders of one test cluster.

    Attributes:
        state: Everything that the cluster writes; gone after ``down``.
        cache: Compiled programs, shared by all checkouts of this user.
    """

    state: Path
    cache: Path

    @classmethod
    def default(cls) -> Paths:
        """Of this checkout, unless the environment says otherwise."""
        state = os.environ.get("FOOTPLATE_TESTBED", CHECKOUT / ".testbed")
        home = os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")
        cache = os.environ.get("FOOTPLATE_TESTBED_CACHE", Path(home) / "footplate-testbed")
        return cls(Path(state).resolve(), Path(cache).resolve())

    @property
    def name(self) -> str:
        """Of the network namespace, the link to it and the control groups; one for each state."""
        return f"fp-{hashlib.sha256(str(self.state).encode()).hexdigest()[:8]}"

    @property
    def facts(self) -> Path:
        """Written last when the cluster has come up: what one needs to know to use it."""
        return self.state / "cluster.json"

    @property
    def logs(self) -> Path:
        """One file for each component."""
        return self.state / "logs"

    @property
    def processes(self) -> Path:
        """One file for each process that was started."""
        return self.state / "processes"

    @property
    def keys(self) -> Path:
        """Certificates, keys and the kubeconfigs of the components."""
        return self.state / "keys"

    @property
    def images(self) -> Path:
        """Archives that nodes import."""
        return self.state / "images"

    @property
    def code(self) -> Path:
        """Copies of the package; the link ``current`` is the one that new pods see."""
        return self.state / "code"

    @property
    def kubeconfig(self) -> Path:
        """For people and tests: the administrator."""
        return self.state / "kubeconfig"

    def node(self, name: str) -> Path:
        """All of one node."""
        return self.state / "nodes" / name

    def lock(self, name: str) -> Path:
        """Held while something is built, started or stopped."""
        return self.cache / f"{name}.lock"
