"""The test cluster itself: what other tests take for granted."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from footplate.runtimes import list_runtimes
from footplate.store import Store
from testbed import (
    BUCKET,
    GPU,
    NAMESPACE,
    RACK_LABEL,
    REGION,
    Node,
    Paths,
    SetupError,
    Testbed,
    wait_until,
)
from testbed.images import Directory, File, Image, Link, archive
from testbed.network import Namespace, choose_link
from testbed.paths import CHECKOUT, GO_MODULES
from testbed.pods import job_images, mounts
from testbed.processes import Process
from testbed.report import tail
from testbed.requirements import PACKAGES, missing
from testbed.versions import required, sources

_TMP = "/tmp"  # noqa: S108 -- in pods, where a volume is mounted over it


def _unpack(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name: member for member in tar}


def _read(content: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        file = tar.extractfile(name)
        assert file
        return file.read()


def test_archive_is_what_a_runtime_imports() -> None:
    """Names and digests inside an image archive agree, and its files have owners and modes."""
    entries: dict[str, File | Link | Directory] = {
        "/bin/tool": File(b"#!/bin/sh\n", mode=0o755),
        "/home/user": Directory(owner=1000),
        "/lib": Link("usr/lib"),
    }
    image = Image("localhost/some:1", entries, entrypoint=("/bin/tool",), user="1000")
    content = archive(image)
    (manifest,) = json.loads(_read(content, "manifest.json"))
    configuration = _read(content, manifest["Config"])
    layer = _read(content, manifest["Layers"][0])
    assert manifest["RepoTags"] == ["localhost/some:1"]
    assert manifest["Config"] == f"{hashlib.sha256(configuration).hexdigest()}.json"
    diff_id = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    assert json.loads(configuration)["rootfs"]["diff_ids"] == [diff_id]
    assert json.loads(configuration)["config"]["User"] == "1000"
    members = _unpack(layer)
    assert members["bin/tool"].mode == 0o755
    assert (members["home/user"].uid, members["home/user"].isdir()) == (1000, True)
    assert members["lib"].linkname == "usr/lib"
    assert archive(image) == content


def test_pods_need_nothing_that_a_volume_hides(tmp_path: Path) -> None:
    """Pods put a volume over /tmp, wherever the checkout and its environment are."""
    hidden = (_TMP, "/dev", "/run")
    seen = [mount.destination for mount in mounts(Paths(tmp_path, tmp_path))]
    assert not [path for path in seen if path.startswith(hidden)]
    for image in job_images():
        links = [entry.target for entry in image.entries.values() if isinstance(entry, Link)]
        assert not [target for target in links if target.startswith(hidden)]
        assert {"/opt/footplate/bin/ray", "/opt/footplate/bin/footplate"} <= image.entries.keys()


def test_pods_see_no_training_code(tmp_path: Path) -> None:
    """What a job trains with must travel: of the checkout, pods see a copy of the package."""
    own = [CHECKOUT / name for name in ("rayjobs", "datasets", "tests")]
    for mount in mounts(Paths(tmp_path, tmp_path)):
        assert not any(folder.is_relative_to(mount.source) for folder in own)


def test_addresses_are_kept_and_free() -> None:
    """A checkout gets the same addresses again, and never those of another network."""
    first = choose_link("fp-00000001", [])
    assert first == choose_link("fp-00000001", [IPv4Network("10.0.0.0/8")])
    assert first != choose_link("fp-00000002", [])
    second = choose_link("fp-00000001", [first.network])
    assert not second.network.overlaps(first.network)
    assert {first.inner, first.outer} <= {str(address) for address in first.network.hosts()}
    with pytest.raises(SetupError, match="no free addresses"):
        choose_link("fp-00000001", [IPv4Network("198.18.0.0/15")])


def test_versions_stand_in_one_place() -> None:
    """A version that changes in go.mod changes everywhere: nothing repeats it."""
    pins = {required(folder.name).version for folder in GO_MODULES.iterdir()}
    harness = [*(CHECKOUT / "tests/cluster/testbed").rglob("*.py"), CHECKOUT / "Makefile"]
    for path in [*harness, CHECKOUT / ".ci" / "run"]:
        text = path.read_text(encoding="utf-8")
        assert not [pin for pin in pins if pin.removeprefix("v") in text], path
    assert {f"{folder.name}/go.sum" for folder in GO_MODULES.iterdir()} <= sources().keys()


def test_modules_come_from_no_named_place() -> None:
    """Whoever builds the cluster decides where modules are fetched from."""
    for name, content in sources().items():
        assert b"://" not in re.sub(rb"//.*", b"", content), name


def test_all_that_is_missing_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody should install one package after the other, starting again each time."""
    monkeypatch.setenv("PATH", str(tmp_path))
    lacking = "\n".join(missing(Paths(tmp_path / "state", tmp_path / "cache"), builds=True))
    assert re.search(r"^Go 1\.\d+", lacking, re.MULTILINE)
    found_by_name = {name for name, file in PACKAGES.items() if not file.startswith("/")}
    (install,) = re.findall("apt-get install (.+)", lacking)
    assert set(install.split()) >= found_by_name


def test_a_dead_process_is_not_taken_for_alive() -> None:
    """A zombie is dead, and so is a process whose id another one has by now."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process.of(child.pid)
    assert process
    assert process.is_alive
    assert not Process(process.pid, process.started - 1).is_alive
    process.kill(signal.SIGKILL)
    wait_until(lambda: not process.is_alive, 10, "the process has ended")
    assert child.poll() is None or child.returncode == -signal.SIGKILL
    child.communicate()


def test_report_shows_the_last_troubles(tmp_path: Path) -> None:
    """Of logs of thousands of lines, those that tell what happened."""
    lines = [f"E1129 12:00:0{number}.000000 trouble {number}" for number in range(9)]
    (tmp_path / "noisy.log").write_text("\n".join(["I1129 12:00:00.0 fine", *lines]))
    (tmp_path / "quiet.log").write_text("I1129 12:00:00.0 fine\n")
    shown = tail(tmp_path)
    assert "noisy.log" in shown
    assert "trouble 8" in shown
    assert "trouble 1" not in shown
    assert "quiet.log" not in shown


def _pod(name: str, command: list[str], *, node: str) -> str:
    """A pod as the namespace demands it, with a volume over /tmp and a GPU."""
    container = {
        "name": "main",
        "image": "localhost/footplate-torch:1",
        "command": command,
        "resources": {"requests": {"cpu": "10m"}, "limits": {GPU: "1"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": _TMP}],
    }
    specification = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": specification}
    )


_SERVE = """
import socket
server = socket.create_server(("", 7000))
held = server.accept()
server.accept()
"""


@pytest.fixture
def pod(testbed: Testbed) -> Iterator[str]:
    """A pod on the second node that accepts a connection and holds it."""
    command = ["python", "-c", _SERVE]
    testbed.kubectl("apply", "-f", "-", stdin=_pod("serves", command, node="node-1"))
    wait = ("wait", "pod/serves", "-n", NAMESPACE, "--for=condition=Ready", "--timeout=60s")
    testbed.kubectl(*wait)
    yield "serves"
    testbed.kubectl("delete", "pod", "serves", "-n", NAMESPACE, "--now", "--ignore-not-found")


_LISTEN = """
import socket, sys, time
while True:
    try:
        connection = socket.create_connection((sys.argv[1], 7000), timeout=1)
        break
    except OSError:
        time.sleep(0.1)
print("connected", flush=True)
connection.settimeout(10)
try:
    print("was told:", connection.recv(1))
except TimeoutError:
    print("heard nothing")
"""


@pytest.fixture
def connected(testbed: Testbed, pod: str) -> Iterator[str]:
    """A pod on the first node that has a connection to the one on the second."""
    address = testbed.get("pod", pod, "-n", NAMESPACE)["status"]["podIP"]
    command = ["python", "-c", _LISTEN, address]
    testbed.kubectl("apply", "-f", "-", stdin=_pod("listens", command, node="node-0"))
    wait_until(lambda: "connected" in _logs(testbed, "listens"), 60, "the pods are connected")
    yield "listens"
    testbed.kubectl("delete", "pod", "listens", "-n", NAMESPACE, "--now")


def _logs(testbed: Testbed, pod: str) -> str:
    try:
        return testbed.kubectl("logs", pod, "-n", NAMESPACE)
    except SetupError:  # it has not started yet
        return ""


_LOOK_AROUND = """
import json, os, socket, sys, urllib.error, urllib.request
import footplate, ray, torch
from footplate.runtimes import list_runtimes

def answer(url):
    try:
        return urllib.request.urlopen(url, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code

def is_writable(path):
    try:
        open(path + "/file", "w").close()
    except OSError:
        return False
    return True

print(json.dumps({
    "user": os.getuid(),
    "ray": ray.__version__,
    "runtimes": [str(runtime) for runtime in list_runtimes()],
    "from": footplate.__file__,
    "mlflow": answer(sys.argv[1] + "/health"),
    "s3": answer(sys.argv[2] + "/runs"),
    "service": answer("http://kuberay-operator.ray-system:8080/metrics"),
    "api": socket.gethostbyname("kubernetes.default.svc.cluster.local"),
    "writable": [path for path in ("/", "/home/ray", "/opt", "/tmp") if is_writable(path)],
}))
"""


@pytest.mark.cluster
@pytest.mark.parametrize("node", ["node-0", "node-1"])
def test_a_pod_finds_all_that_a_job_needs(testbed: Testbed, node: str) -> None:
    """Under restricted Pod Security: Python with Ray and torch, store, MLflow, DNS, services."""
    name = f"looks-around-{node}"
    command = ["python", "-c", _LOOK_AROUND, testbed.mlflow.url, testbed.s3.endpoint]
    testbed.kubectl("apply", "-f", "-", stdin=_pod(name, command, node=node))
    done = ("--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s")
    testbed.kubectl("wait", f"pod/{name}", "-n", NAMESPACE, *done)
    seen = json.loads(testbed.kubectl("logs", name, "-n", NAMESPACE).splitlines()[-1])
    testbed.kubectl("delete", "pod", name, "-n", NAMESPACE, "--now")
    assert seen == {
        "user": 1000,
        "ray": version("ray"),
        "runtimes": [str(runtime) for runtime in list_runtimes()],
        "from": "/opt/footplate/code/platform/footplate/__init__.py",
        "mlflow": 200,
        "s3": 403,
        "service": 200,
        "api": "10.96.0.1",
        "writable": [_TMP],
    }


@pytest.mark.cluster
def test_this_machine_reaches_what_pods_reach(testbed: Testbed) -> None:
    """One URL for both, so a spec can be submitted as it is."""
    with pytest.MonkeyPatch.context() as patch:
        for name, text in testbed.environment.items():
            patch.setenv(name, text)
        store = Store(f"s3://{BUCKET}/testbed", endpoint=testbed.s3.endpoint, region=REGION)
        store.put("greeting", b"hello")
        assert store.get("greeting") == b"hello"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{testbed.mlflow.url}/health", timeout=10) as answer:
        assert answer.status == 200


@pytest.mark.cluster
def test_commands_run_in_pods(testbed: Testbed, pod: str) -> None:
    """The API server reaches the kubelets, which logs, exec and port-forward need."""
    assert testbed.kubectl("exec", pod, "-n", NAMESPACE, "--", "id", "-u").strip() == "1000"


@pytest.mark.cluster
def test_a_node_loses_its_power(
    testbed: Testbed, second_node: Node, pod: str, connected: str
) -> None:
    """It vanishes without a word and comes back with its GPUs; the other one does not notice."""
    node = second_node
    node.kill()
    assert not node.is_alive
    wait_until(lambda: _readiness(testbed, "node-1") == "Unknown", 60, "the node is missed")
    assert _readiness(testbed, "node-0") == "True"
    assert testbed.get("pod", pod, "-n", NAMESPACE)["status"]["phase"] == "Running"
    assert _logs(testbed, connected).splitlines() == ["connected", "heard nothing"]
    node.restore()
    found = node.get()
    assert _readiness(testbed, "node-1") == "True"
    assert found["status"]["allocatable"][GPU] == str(node.gpus)
    assert found["metadata"]["labels"][RACK_LABEL] == "rack-1"


def _readiness(testbed: Testbed, node: str) -> str:
    conditions: list[dict[str, str]] = testbed.node(node).get()["status"]["conditions"]
    return next(one["status"] for one in conditions if one["type"] == "Ready")


@pytest.mark.cluster
def test_the_api_server_comes_back(testbed: Testbed) -> None:
    """An outage is an outage, and nothing is lost in it."""
    before = testbed.get("namespace", NAMESPACE)["metadata"]["uid"]
    testbed.stop_api_server()
    with pytest.raises(SetupError, match="refused"):
        testbed.kubectl("get", "namespaces")
    testbed.start_api_server()
    assert testbed.get("namespace", NAMESPACE)["metadata"]["uid"] == before


@pytest.mark.cluster
@pytest.mark.chaos
def test_two_clusters_and_a_crash(testbed: Testbed, tmp_path: Path) -> None:
    """
    A second cluster beside the first crashes, comes up again and goes without a trace.

    The first is not touched by any of it.
    """
    paths = Paths(tmp_path / "state", Paths.default().cache)
    namespace = Namespace(paths.name)
    try:
        second = Testbed.up(paths, nodes=1, gpus=1)
        assert second.server != testbed.server
        assert len(second.get("nodes")["items"]) == 1
        for pid in namespace.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A signal is sent before it has worked: until then servers still answer.
        wait_until(lambda: not namespace.pids(), 60, "what was killed has ended")
        assert Testbed.find(paths) is None
        again = Testbed.up(paths, nodes=1, gpus=1)
        assert again.get("clusterqueue", "team")["metadata"]["name"] == "team"
    finally:
        Testbed.clear(paths)
    assert _traces(paths) == []
    assert len(testbed.get("nodes")["items"]) == len(testbed.nodes)


def _traces(paths: Paths) -> list[str]:
    """What is left of a cluster on this machine."""
    links = Path("/sys/class/net").glob(paths.name)
    groups = Path("/sys/fs/cgroup").glob(f"**/{paths.name}")
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    commands = [_command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    own = [line for line in (*mounts, *commands) if str(paths.state) in line]
    files = [path for path in (paths.state, Namespace(paths.name).file) if path.exists()]
    return [str(found) for found in (*links, *groups, *own, *files)]


def _command_line(path: Path) -> str:
    with suppress(OSError):
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
