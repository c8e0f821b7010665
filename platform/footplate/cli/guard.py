"""``footplate guard``: the client that never leaves."""

from __future__ import annotations

import signal
import threading
import time
from typing import Unpack

import click

from footplate.cli._cluster import Where, cluster_options

__all__ = ["command"]


@click.command("guard")
@click.option("-A", "--all-namespaces", is_flag=True, help="Watch over all namespaces.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Answer /healthz there; left out: nowhere.",
)
@click.option(
    "--store-endpoint",
    "store_endpoints",
    multiple=True,
    metavar="URL",
    help="Specs may name this S3-compatible server: credentials are sent there. Repeatable.",
)
@cluster_options
def command(
    all_namespaces: bool,
    dry_run: bool,
    health_port: int | None,
    store_endpoints: tuple[str, ...],
    **where: Unpack[Where],
) -> None:
    """
    Do for runs what neither KubeRay nor Kueue does, until stopped.

    Pods that a lost node keeps from ending are replaced; a driver that asks for a new RayCluster
    gets it; a job that KubeRay refuses gives its quota back. Every act is printed, and is an Event
    of its RayJob. Credentials of stores are taken from the environment, and sent to no endpoint
    that a spec names unless it is allowed.

    Exit codes: 0 stopped by a signal, 18 the cluster fails at the start or does not allow it.
    """
    from footplate.cluster import ALL_NAMESPACES, connect
    from footplate.runs.guard import Health, guard

    if all_namespaces and where["namespace"] is not None:
        raise click.UsageError("-n names a namespace, and -A means all of them")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    cluster = connect(**where)
    namespace = ALL_NAMESPACES if all_namespaces else cluster.namespace
    _say(f"watching over {f'namespace {namespace}' if namespace else 'all namespaces'}")
    with Health(health_port) as health:
        guard(
            cluster,
            namespace=namespace,
            stopped=stopped,
            say=_say,
            dry_run=dry_run,
            health=health,
            store_endpoints=store_endpoints,
        )
    _say("stopped")


def _say(sentence: str) -> None:
    # echo writes through at once, so that nothing is lost in a buffer when a pod ends.
    click.echo(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {sentence}")
