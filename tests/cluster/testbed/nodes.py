"""
The nodes: several fit on one machine, and each can lose its power.

A node is a tree of processes with process ids and mounts of its own, in the network of the
cluster: a container runtime, a kubelet and all containers. When its first process is killed, the
kernel ends all the others and takes the mounts away, whatever they were doing. What a node keeps
on disk stays, as in a machine.
"""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from testbed import cgroups
from testbed.build import Build
from testbed.certificates import Identity
from testbed.commands import capture, run, wait_until
from testbed.control_plane import ControlPlane
from testbed.errors import SetupError
from testbed.network import DNS_DOMAIN, Link, Namespace
from testbed.paths import Paths
from testbed.pods import Mount
from testbed.processes import Processes
from testbed.requirements import CNI_PLUGINS

__all__ = ["GPU", "PAUSE_IMAGE", "RACK_LABEL", "Host", "Node"]

GPU = "nvidia.com/gpu"
RACK_LABEL = "footplate.test/rack"
PAUSE_IMAGE = "localhost/footplate-testbed/pause:1"

_SOCKET = "/run/containerd/containerd.sock"  # in the node's own /run
# What the kubelet sets for the whole machine if it finds something else: it finds this.
_KERNEL_SETTINGS = {
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}

_BOOT = """\
#!/bin/sh
# The first process of a node: it starts the others and waits for whatever they leave behind.
set -eu

# An empty file system over a folder of the machine, in which the given folders can still be seen.
cover() {{
    folder=$1
    shift
    mount -n -t tmpfs -o mode=755 tmpfs /mnt
    for kept in "$@"; do
        case $kept in
        "$folder"/*)
            mkdir -p "/mnt${{kept#"$folder"}}"
            mount -n --rbind "$kept" "/mnt${{kept#"$folder"}}"
            ;;
        esac
    done
    mount -n --move /mnt "$folder"
}}

for folder in /run /var/lib /var/log; do
    cover "$folder" {kept}
done
# What the kubelet keeps is on disk, under the path that it has on every machine: it makes sockets
# there, whose names must be short.
mkdir -p /var/lib/kubelet {home}/kubelet
mount -n --bind {home}/kubelet /var/lib/kubelet
{settings}
containerd --config {home}/containerd.toml &
until ctr --address {socket} version >/dev/null 2>&1; do sleep 0.1; done
for image in {images}; do
    ctr --address {socket} --namespace k8s.io images import "$image"
done
{kubelet} &
wait
"""


@dataclass(frozen=True)
class Host:
    """What all nodes of a cluster share."""

    paths: Paths
    build: Build
    namespace: Namespace
    link: Link
    processes: Processes
    control_plane: ControlPlane
    mounts: Sequence[Mount]
    kubectl: Callable[..., str]


@dataclass(frozen=True)
class Node:
    """
    One node of the cluster.

    Attributes:
        index: Counted from 0.
        gpus: How many GPUs it claims to have.
    """

    host: Host
    index: int
    gpus: int

    @property
    def name(self) -> str:
        """Of the Node object, and of the node's first process."""
        return f"node-{self.index}"

    @property
    def address(self) -> str:
        """Where its kubelet listens, and the gateway of its pods."""
        return f"10.244.{self.index}.1"

    @property
    def is_alive(self) -> bool:
        """Whether it has power."""
        return self.host.processes.find(self.name) is not None

    def create(self, images: Sequence[Path]) -> None:
        """Set the node up and start it; `wait_until_ready` waits for it."""
        self._home.mkdir(parents=True)
        self._create_bridge()
        self._write_files(images)
        self._boot()

    def kill(self) -> None:
        """Cut the power: all its processes end at once, and what is sent to its pods is lost."""
        # First, or the kernel would tell whoever is connected to its pods that they have ended.
        self._ip("link", "set", self._bridge, "down")
        self.host.processes.stop(self.name)

    def restore(self) -> None:
        """Give it power again and wait until it is ready."""
        if self.is_alive:
            return
        started_at = time.time()
        cgroups.remove(self._cgroup)
        self._ip("link", "set", self._bridge, "up")
        self._boot()
        self.wait_until_ready(since=started_at)

    def wait_until_ready(self, since: float = 0.0) -> None:
        """
        Wait until the node can take pods, with its GPUs.

        Args:
            since: It must have said so after this time.
        """
        wait_until(lambda: self._is_ready(since), 120, f"{self.name} is ready", every_s=0.3)
        size = {GPU: str(self.gpus)}
        patch = json.dumps({"status": {"capacity": size, "allocatable": size}})
        patching = ("patch", "node", self.name, "--subresource=status", "--type=merge")
        self.host.kubectl(*patching, f"--patch={patch}")

    def get(self) -> dict[str, Any]:
        """Its object in the cluster; empty if there is none."""
        found = self.host.kubectl("get", "node", self.name, "-o", "json", "--ignore-not-found")
        values: dict[str, Any] = json.loads(found) if found else {}
        return values

    @property
    def _home(self) -> Path:
        return self.host.paths.node(self.name)

    @property
    def _bridge(self) -> str:
        return f"pods{self.index}"

    @property
    def _subnet(self) -> str:
        return f"10.244.{self.index}.0/24"

    @property
    def _cgroup(self) -> str:
        return f"/{self.host.paths.name}/{self.name}"

    def _is_ready(self, since: float) -> bool:
        if not self.is_alive:
            raise SetupError(f"{self.name} has ended; its log says why")
        conditions = self.get().get("status", {}).get("conditions", [])
        for condition in conditions:
            if condition["type"] == "Ready" and condition["status"] == "True":
                said_at = datetime.fromisoformat(condition["lastHeartbeatTime"]).timestamp()
                return said_at >= int(since)
        return False

    def _boot(self) -> None:
        cgroups.create(self._cgroup)
        shutil.rmtree(self._home / "ipam", ignore_errors=True)  # no pod has lived through it
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self.host.processes.start(self.name, [*own, "sh", self._home / "boot.sh"])

    def _create_bridge(self) -> None:
        self._ip("link", "add", self._bridge, "type", "bridge")
        self._ip("address", "add", f"{self.address}/24", "dev", self._bridge)
        self._ip("link", "set", self._bridge, "up")
        # Holds while the bridge is down: nobody is told that a node without power is gone.
        self._ip("route", "add", "blackhole", self._subnet, "metric", "4096")

    def _ip(self, *arguments: str) -> None:
        run("ip", "-n", self.host.namespace.name, *arguments)

    def _write_files(self, images: Sequence[Path]) -> None:
        home = self._home
        identity = Identity(f"system:node:{self.name}", ("system:nodes",))
        kubeconfig = self.host.control_plane.kubeconfig_for(self.name, identity)
        (home / "resolv.conf").touch()
        (home / "cni").mkdir()
        (home / "cni" / "pods.conflist").write_text(_json(self._cni()))
        (home / "container.json").write_text(_json(self._container()))
        (home / "containerd.toml").write_text(self._containerd())
        (home / "kubelet.json").write_text(_json(self._kubelet()))
        (home / "settings").mkdir()
        for name, value in _KERNEL_SETTINGS.items():
            (home / "settings" / name.replace("/", ".")).write_text(f"{value}\n")
        (home / "boot.sh").write_text(self._boot_script(images, kubeconfig))

    def _boot_script(self, images: Sequence[Path], kubeconfig: Path) -> str:
        home = self._home
        kubelet = [
            self.host.build.program("kubelet"),
            f"--config={home}/kubelet.json",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--node-labels={RACK_LABEL}=rack-{self.index}",
            # Lower than that of its parent takes a capability that root may lack.
            "--oom-score-adj=0",
        ]
        sources = [mount.source.resolve() for mount in self.host.mounts]
        kept = [self.host.paths.state, self.host.build.folder, *sources]
        settings = [
            f"mount -n --bind {home}/settings/{name.replace('/', '.')} /proc/sys/{name}"
            for name in _KERNEL_SETTINGS
            if (Path("/proc/sys") / name).exists()
        ]
        return _BOOT.format(
            home=home,
            images=" ".join(map(str, images)),
            kept=" ".join(str(path) for path in kept if path.is_dir()),
            kubelet=" ".join(map(str, kubelet)),
            settings="\n".join(settings),
            socket=_SOCKET,
        )

    def _cni(self) -> dict[str, Any]:
        addresses = {
            "type": "host-local",
            "dataDir": f"{self._home}/ipam",
            "ranges": [[{"subnet": self._subnet, "gateway": self.address}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {
            "type": "bridge",
            "bridge": self._bridge,
            "isGateway": True,
            "hairpinMode": True,
            "ipam": addresses,
        }
        return {"cniVersion": "0.4.0", "name": self.name, "plugins": [bridge]}

    def _container(self) -> dict[str, Any]:
        """What every container starts from: the runtime's own default, and what pods see."""
        specification: dict[str, Any] = json.loads(capture("ctr", "oci", "spec"))
        specification["mounts"] += [
            {
                "destination": mount.destination,
                "type": "bind",
                "source": str(mount.source),
                "options": ["rbind", "ro"],
            }
            for mount in self.host.mounts
        ]
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = {"type": "RLIMIT_NOFILE", "hard": most, "soft": most}
        specification["process"]["rlimits"] = [files]
        return specification

    def _containerd(self) -> str:
        home, cri = self._home, 'plugins."io.containerd.grpc.v1.cri"'
        return f"""\
version = 2
root = "{home}/containerd"
state = "/run/containerd"

[grpc]
  address = "{_SOCKET}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"

[{cri}]
  sandbox_image = "{PAUSE_IMAGE}"
  # Needs a capability that root may lack.
  restrict_oom_score_adj = true

[{cri}.cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{home}/cni"

[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "{home}/container.json"
"""

    def _kubelet(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzBindAddress": self.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": str(self.host.control_plane.authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [self.host.link.inner],
            "clusterDomain": DNS_DOMAIN,
            "resolvConf": f"{self._home}/resolv.conf",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._cgroup,
            "enforceNodeAllocatable": [],
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "failSwapOn": False,
            # All nodes fill one disk; images that are gone cannot be fetched again.
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "podLogsDir": f"{self._home}/pod-logs",
            "volumePluginDir": f"{self._home}/plugins",
        }


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2)
