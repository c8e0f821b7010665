"""
The network namespace that the whole cluster is in.

Bridges, packet filter rules and addresses of two clusters never meet, and when the namespace is
deleted, they are gone. A pair of virtual interfaces leads into it: what listens on the inner
address can be reached by this machine and by the pods under the same URL.
"""

from __future__ import annotations

import ipaddress
import json
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.commands import capture, run, wait_until
from testbed.errors import SetupError

__all__ = [
    "DNS_DOMAIN",
    "SERVICES",
    "Link",
    "Namespace",
    "choose_link",
    "create",
    "remove",
    "used_networks",
]

DNS_DOMAIN = "cluster.local"
SERVICES = ipaddress.IPv4Network("10.96.0.0/16")

# For measurements between devices of one laboratory (RFC 2544): no machine has it on a network.
_LINKS = ipaddress.IPv4Network("198.18.0.0/15")


@dataclass(frozen=True)
class Link:
    """The addresses of the two ends between this machine and a cluster."""

    network: ipaddress.IPv4Network

    @property
    def outer(self) -> str:
        """The end that belongs to this machine."""
        return str(self.network[1])

    @property
    def inner(self) -> str:
        """The end inside the namespace: the address of the cluster."""
        return str(self.network[2])


@dataclass(frozen=True)
class Namespace:
    """A network namespace by its name."""

    name: str

    @property
    def file(self) -> Path:
        """What keeps the namespace while no process is in it."""
        return Path("/run/netns") / self.name

    @property
    def enter(self) -> list[str]:
        """
        Command line that runs another one in the namespace.

        Unlike ``ip netns exec``, without a mount namespace of its own.
        """
        return ["nsenter", f"--net={self.file}", "--"]

    def run(self, *command: str | Path) -> None:
        """Run a command inside, to its end."""
        run(*self.enter, *command)

    def pids(self) -> list[int]:
        """The processes inside. Nobody else's are: the namespace was made for the cluster."""
        if not self.file.exists():
            return []
        return [int(pid) for pid in capture("ip", "netns", "pids", self.name).split()]


def choose_link(name: str, used: Iterable[ipaddress.IPv4Network]) -> Link:
    """
    A free pair of addresses, the same again and again for a name unless others have taken it.

    Args:
        name: Ends with hexadecimal digits.
        used: Networks that this machine knows a way to.
    """
    networks = list(_LINKS.subnets(new_prefix=30))
    first = int(name.rpartition("-")[2], 16)
    taken = [network for network in used if network.overlaps(_LINKS)]
    for offset in range(len(networks)):
        network = networks[(first + offset) % len(networks)]
        if not any(network.overlaps(other) for other in taken):
            return Link(network)
    raise SetupError(f"no free addresses in {_LINKS}")


def used_networks() -> list[ipaddress.IPv4Network]:
    """Where this machine knows a way to, the default route aside."""
    routes = json.loads(capture("ip", "-4", "-json", "route", "show", "table", "all"))
    names = [route["dst"] for route in routes if route["dst"] != "default"]
    return [ipaddress.IPv4Network(name, strict=False) for name in names]


def create(namespace: Namespace, link: Link) -> None:
    """Make the namespace and the way into it."""
    name, inside = namespace.name, ["ip", "-n", namespace.name]
    run("ip", "netns", "add", name)
    run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "address", "add", f"{link.outer}/30", "dev", name)
    run("ip", "link", "set", name, "up")
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "address", "add", f"{link.inner}/30", "dev", "eth0")
    run(*inside, "link", "set", "eth0", "up")
    # Addresses of services are rewritten before a packet leaves, but need a route to begin with.
    run(*inside, "route", "add", str(SERVICES), "via", link.outer)
    # Whoever calls the outside world learns at once that there is none.
    run(*inside, "route", "add", "unreachable", "default")
    namespace.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")


def remove(namespace: Namespace) -> None:
    """End every process in the namespace and delete it, with all that is in it."""
    for pid in namespace.pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not namespace.pids(), 30, f"no process is left in {namespace.name}")
    # The kernel keeps a namespace until the last connection in it has timed out, and would keep
    # this machine's end of the pair as long.
    if (Path("/sys/class/net") / namespace.name).exists():
        run("ip", "link", "delete", namespace.name)
    if namespace.file.exists():
        run("ip", "netns", "delete", namespace.name)
