"""The test cluster as a whole: up, down, and what tests do with it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path
from string import Template
from typing import Any

from testbed import cgroups, network, report
from testbed.build import Build, build, find_build
from testbed.commands import capture, wait_until
from testbed.control_plane import ControlPlane
from testbed.errors import SetupError
from testbed.images import File, Image, write_archive
from testbed.locks import locked
from testbed.network import Link, Namespace
from testbed.nodes import PAUSE_IMAGE, Host, Node
from testbed.operators import KUBERAY, KUEUE
from testbed.paths import MANIFESTS, Paths
from testbed.pods import job_images, mounts, sync_code
from testbed.processes import Processes, is_proxy
from testbed.requirements import check
from testbed.services import REGION, S3, MLflow

__all__ = ["NAMESPACE", "QUEUE", "Testbed"]

NAMESPACE = "team"
QUEUE = "team-queue"


@dataclass(frozen=True)
class _Facts:
    """What a running cluster is like; all that its state does not say otherwise."""

    nodes: int
    gpus: int
    build: str
    network: str
    s3_access_key: str
    s3_secret_key: str


class Testbed:
    """
    A real Kubernetes with KubeRay and Kueue, an S3 server and an MLflow server.

    Use `up` to start one or to find the one that runs. The first node holds the operators and
    should stay alive; tests may kill the others.

    Args:
        facts: What was chosen when it was started.
    """

    __test__ = False  # pytest takes classes of such a name for tests

    def __init__(self, paths: Paths, facts: _Facts) -> None:
        self._paths = paths
        self._build = programs = Build(Path(facts.build))
        self._facts = facts
        self._namespace = Namespace(paths.name)
        self._link = Link(IPv4Network(facts.network))
        self._processes = Processes(paths, self._namespace)
        self._control_plane = ControlPlane(paths, programs, self._processes, self._link)
        self.s3 = S3(self._link, facts.s3_access_key, facts.s3_secret_key)
        self.mlflow = MLflow(self._link)
        host = Host(
            paths=paths,
            build=programs,
            namespace=self._namespace,
            link=self._link,
            processes=self._processes,
            control_plane=self._control_plane,
            mounts=mounts(paths),
            kubectl=self.kubectl,
        )
        self.nodes = tuple(Node(host, index, facts.gpus) for index in range(facts.nodes))

    @classmethod
    def up(cls, paths: Paths | None = None, *, nodes: int = 4, gpus: int = 8) -> Testbed:
        """
        Start the cluster, or find it running; what an earlier, crashed one left is cleared first.

        Args:
            nodes: How many nodes.
            gpus: How many GPUs each node claims to have.

        Raises:
            SetupError: Naming what the machine lacks or what did not start; nothing is left then
                but the logs.
        """
        paths = paths or Paths.default()
        check(paths, builds=not find_build(paths).is_complete)
        programs = build(paths)
        with locked(paths.lock(paths.name)):
            running = cls.find(paths)
            if running:
                running._check_is_like(nodes, gpus)
                running._repair()
                running.sync()
                return running
            _clear(paths)
            return cls._start(paths, programs, nodes, gpus)

    @classmethod
    def find(cls, paths: Paths | None = None) -> Testbed | None:
        """The cluster that runs; None if there is none, or only what is left of one."""
        paths = paths or Paths.default()
        if not paths.facts.exists():
            return None
        found = cls(paths, _Facts(**json.loads(paths.facts.read_text(encoding="utf-8"))))
        return found if found._is_whole() else None

    @staticmethod
    def clear(paths: Paths | None = None) -> None:
        """Stop a cluster, running or crashed, and remove all that it has made."""
        paths = paths or Paths.default()
        with locked(paths.lock(paths.name)):
            _clear(paths)

    def down(self) -> None:
        """Stop this cluster and remove all that it has made."""
        self.clear(self._paths)

    def node(self, name: str) -> Node:
        """
        A node by its name.

        Raises:
            SetupError: If there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise SetupError(f"no node {name!r}: there are {', '.join(n.name for n in self.nodes)}")

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator."""
        return self._paths.kubeconfig

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._control_plane.server

    @property
    def logs(self) -> Path:
        """A folder with one file for each component."""
        return self._paths.logs

    @property
    def environment(self) -> dict[str, str]:
        """All variables for a process that uses the cluster, as a person would have set them."""
        return {
            **_neutral_environment(),
            "KUBECONFIG": str(self.kubeconfig),
            "AWS_ACCESS_KEY_ID": self.s3.access_key,
            "AWS_SECRET_ACCESS_KEY": self.s3.secret_key,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.s3.endpoint,
            "MLFLOW_TRACKING_URI": self.mlflow.url,
        }

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """
        What kubectl prints.

        Raises:
            SetupError: If it fails.
        """
        program = self._build.program("kubectl")
        flag = f"--kubeconfig={self._paths.kubeconfig}"
        return capture(program, flag, *arguments, env=_neutral_environment(), stdin=stdin)

    def get(self, *arguments: str) -> dict[str, Any]:
        """What ``kubectl get`` prints as JSON."""
        answer: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return answer

    def sync(self) -> None:
        """Show the present source of Footplate to pods that start from now on."""
        sync_code(self._paths)

    def stop_api_server(self) -> None:
        """End the API server without a word."""
        self._control_plane.stop_api_server()

    def start_api_server(self) -> None:
        """Start the API server again and wait until it is ready."""
        self._control_plane.start_api_server()

    def restart_api_server(self) -> None:
        """Let the API server crash, start it again and wait until it is ready."""
        self.stop_api_server()
        self.start_api_server()

    @classmethod
    def _start(cls, paths: Paths, programs: Build, nodes: int, gpus: int) -> Testbed:
        link = network.choose_link(paths.name, network.used_networks())
        keys = (secrets.token_hex(10), secrets.token_hex(20))
        facts = _Facts(nodes, gpus, str(programs.folder), str(link.network), *keys)
        testbed = cls(paths, facts)
        try:
            testbed._start_all()
        except SetupError as error:
            folder = report.keep(paths.logs, testbed.kubectl)
            _clear(paths)
            raise SetupError(f"{error}\n{report.tail(folder)}\nAll logs: {folder}") from error
        except BaseException:
            _clear(paths)
            raise
        return testbed

    def _start_all(self) -> None:
        self._paths.state.mkdir(parents=True, mode=0o700)
        network.create(self._namespace, self._link)
        self.s3.start(self._paths, self._build, self._processes)
        self.mlflow.start(self._paths, self._processes)
        self.sync()
        self._control_plane.start()
        self._apply("system.yaml")
        self._start_nodes()
        self._start_operators()
        self._apply("team.yaml")
        # The webhooks of Kueue answer a moment after its Deployment is ready.
        wait_until(self._has_queues, 60, "Kueue takes queues", every_s=0.5)
        self.s3.wait()
        self.mlflow.wait()
        self._paths.facts.write_text(json.dumps(asdict(self._facts), indent=2))

    def _start_nodes(self) -> None:
        pause, operators, jobs = self._write_images()
        for node in self.nodes:
            node.create([pause, *(operators if node is self.nodes[0] else []), *jobs])
        for node in self.nodes:
            node.wait_until_ready()

    def _write_images(self) -> tuple[Path, list[Path], list[Path]]:
        operators = [operator.make_image(self._build) for operator in (KUBERAY, KUEUE)]
        images = [_pause_image(), *operators, *job_images()]
        files = [self._paths.images / f"{number}.tar" for number in range(len(images))]
        for image, file in zip(images, files, strict=True):
            write_archive(image, file)
        return files[0], files[1 : 1 + len(operators)], files[1 + len(operators) :]

    def _start_operators(self) -> None:
        stable = self.nodes[0].name
        KUBERAY.apply(self._paths, self._build, self.kubectl, stable)
        # From now on Kueue must agree to every pod, before it can answer.
        KUBERAY.wait_for_pod(self.kubectl)
        KUEUE.apply(self._paths, self._build, self.kubectl, stable)
        KUEUE.wait(self.kubectl)
        KUBERAY.wait(self.kubectl)

    def _has_queues(self) -> bool:
        try:
            self._apply("queues.yaml")
        except SetupError as error:
            if "webhook" not in str(error):
                raise
            return False
        return True

    def _apply(self, manifest: str) -> None:
        text = (MANIFESTS / manifest).read_text(encoding="utf-8")
        values = {
            "GPUS": str(self._facts.gpus * self._facts.nodes),
            "S3_ACCESS_KEY": self.s3.access_key,
            "S3_SECRET_KEY": self.s3.secret_key,
            "S3_REGION": REGION,
        }
        self.kubectl("apply", "-f", "-", stdin=Template(text).safe_substitute(values))

    def _is_whole(self) -> bool:
        """Whether nothing is broken but what tests break, and `_repair` can repair."""
        names = {node.name for node in self.nodes}
        return bool(self._processes.find("etcd")) and set(self._processes.dead()) <= names

    def _repair(self) -> None:
        if not self._processes.find("kube-apiserver"):
            self.start_api_server()
        for node in self.nodes:
            node.restore()

    def _check_is_like(self, nodes: int, gpus: int) -> None:
        if (nodes, gpus) != (self._facts.nodes, self._facts.gpus):
            raise SetupError(
                f"a cluster with {self._facts.nodes} nodes of {self._facts.gpus} GPUs is running; "
                "take it down first"
            )


def _neutral_environment() -> dict[str, str]:
    """This process's own, without what leads to other places."""
    elsewhere = ("AWS_", "KUBECONFIG", "MLFLOW_")
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(elsewhere) and not is_proxy(name)
    }


def _pause_image() -> Image:
    """What holds the network of a pod while its containers come and go."""
    busybox = Path(shutil.which("busybox") or "").read_bytes()
    wait = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"
    return Image(
        name=PAUSE_IMAGE,
        entries={"/busybox": File(busybox, mode=0o755)},
        entrypoint=("/busybox", "sh", "-c", wait),
    )


def _clear(paths: Paths) -> None:
    network.remove(Namespace(paths.name))
    cgroups.remove(f"/{paths.name}")
    if paths.state.exists():
        shutil.rmtree(paths.state)
