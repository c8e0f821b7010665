"""etcd, the API server, the controllers, the scheduler, the service proxy and cluster DNS."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.build import Build
from testbed.certificates import Authority, Identity
from testbed.commands import succeeds, wait_until
from testbed.network import DNS_DOMAIN, SERVICES, Link
from testbed.paths import Paths
from testbed.processes import Processes

__all__ = ["API_PORT", "NODE_LOST_S", "PODS", "ControlPlane"]

API_PORT = 6443
PODS = "10.244.0.0/16"
# How long a node may be silent before its pods are given up.
NODE_LOST_S = 16

_ETCD = "http://127.0.0.1:2379"
_COMPONENTS = {
    "kube-controller-manager": Identity("system:kube-controller-manager"),
    "kube-scheduler": Identity("system:kube-scheduler"),
    "kube-proxy": Identity("system:kube-proxy"),
    "coredns": Identity("system:coredns"),
}


class ControlPlane:
    """
    Everything but the nodes, in one copy.

    Args:
        link: The address of the cluster.
    """

    def __init__(self, paths: Paths, build: Build, processes: Processes, link: Link) -> None:
        self._paths = paths
        self._build = build
        self._processes = processes
        self._link = link
        self.authority = Authority(paths.keys)

    @property
    def server(self) -> str:
        """URL of the API server, for this machine and for pods."""
        return f"https://{self._link.inner}:{API_PORT}"

    def start(self) -> None:
        """Start all, and wait until the API server is ready."""
        self._make_keys()
        self._start_etcd()
        self.start_api_server()
        self._start_controllers()
        self._start_proxy()
        self._start_dns()

    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready."""
        self._start("kube-apiserver", *self._api_server_flags())
        wait_until(self.is_ready, 90, "the API server is ready", every_s=0.3)

    def stop_api_server(self) -> None:
        """End the API server without a word, as a crash would."""
        self._processes.stop("kube-apiserver")

    def is_ready(self) -> bool:
        """Whether the API server says so itself."""
        flags = [f"--kubeconfig={self._paths.kubeconfig}", "--request-timeout=5s"]
        return succeeds(self._build.program("kubectl"), *flags, "get", "--raw", "/readyz")

    def kubeconfig_for(self, name: str, identity: Identity) -> Path:
        """A kubeconfig file for a component."""
        self.authority.client(name, identity)
        file = self._paths.keys / f"{name}.kubeconfig"
        file.write_text(self.authority.kubeconfig(name, self.server), encoding="utf-8")
        return file

    def _make_keys(self) -> None:
        self.authority.create()
        self.authority.key_pair("service-accounts")
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        names.append(f"kubernetes.default.svc.{DNS_DOMAIN}")
        self.authority.server("api", [self._link.inner, "127.0.0.1", str(SERVICES[1])], names)
        self.authority.client("front-proxy", Identity("front-proxy"))
        self.authority.client("api-to-kubelet", Identity("api-to-kubelet", ("system:masters",)))
        administrator = self.kubeconfig_for("admin", Identity("admin", ("system:masters",)))
        administrator.replace(self._paths.kubeconfig)
        for name, identity in _COMPONENTS.items():
            self.kubeconfig_for(name, identity)

    def _start_etcd(self) -> None:
        peer = "http://127.0.0.1:2380"
        self._start(
            "etcd",
            "--name=testbed",
            f"--data-dir={self._paths.state}/etcd",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=testbed={peer}",
            "--unsafe-no-fsync",  # lost with the cluster
            "--log-level=warn",
        )

    def _api_server_flags(self) -> list[str]:
        keys = self._paths.keys
        return [
            f"--etcd-servers={_ETCD}",
            f"--bind-address={self._link.inner}",
            f"--advertise-address={self._link.inner}",
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={SERVICES}",
            "--allow-privileged",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--client-ca-file={keys}/ca.crt",
            f"--tls-cert-file={keys}/api.crt",
            f"--tls-private-key-file={keys}/api.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys}/service-accounts.pub",
            f"--service-account-signing-key-file={keys}/service-accounts.key",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={keys}/api-to-kubelet.crt",
            f"--kubelet-client-key={keys}/api-to-kubelet.key",
            # Aggregated APIs of operators that run as pods.
            "--enable-aggregator-routing",
            f"--proxy-client-cert-file={keys}/front-proxy.crt",
            f"--proxy-client-key-file={keys}/front-proxy.key",
            f"--requestheader-client-ca-file={keys}/ca.crt",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        ]

    def _start_controllers(self) -> None:
        keys = self._paths.keys
        common = ["--leader-elect=false", "--bind-address=127.0.0.1"]
        self._start(
            "kube-controller-manager",
            *common,
            f"--kubeconfig={keys}/kube-controller-manager.kubeconfig",
            f"--root-ca-file={keys}/ca.crt",
            f"--service-account-private-key-file={keys}/service-accounts.key",
            "--use-service-account-credentials",
            f"--node-monitor-grace-period={NODE_LOST_S}s",
        )
        kubeconfig = f"--kubeconfig={keys}/kube-scheduler.kubeconfig"
        self._start("kube-scheduler", *common, kubeconfig)

    def _start_proxy(self) -> None:
        kubeconfig = str(self._paths.keys / "kube-proxy.kubeconfig")
        configuration = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clientConnection": {"kubeconfig": kubeconfig},
            "clusterCIDR": PODS,
            "hostnameOverride": "node-0",
            # Limits of the whole machine, which are not the cluster's to set.
            "conntrack": {
                "maxPerCore": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
        file = self._write("kube-proxy.json", json.dumps(configuration, indent=2))
        self._start("kube-proxy", f"--config={file}")

    def _start_dns(self) -> None:
        zones = f"{DNS_DOMAIN}:53 in-addr.arpa:53"
        kubeconfig = self._paths.keys / "coredns.kubeconfig"
        records = f"kubernetes {DNS_DOMAIN} in-addr.arpa {{\n kubeconfig {kubeconfig}\n ttl 1\n}}"
        blocks = f"{zones} {{\nbind {self._link.inner}\nerrors\n{records}\n}}\n"
        self._start("coredns", "-conf", str(self._write("Corefile", blocks)))

    def _start(self, program: str, *flags: str) -> None:
        self._processes.start(program, [self._build.program(program), *flags])

    def _write(self, name: str, text: str) -> Path:
        file = self._paths.state / name
        file.write_text(text, encoding="utf-8")
        return file
