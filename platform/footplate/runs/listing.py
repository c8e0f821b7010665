"""All runs of a namespace, or of a cluster, at one moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from footplate.cluster import POD, RAYCLUSTER, RAYJOB, WORKLOAD, Cluster, connect
from footplate.errors import ObjectMissingError
from footplate.runs.looking import reduced, selections_of_many
from footplate.runs.state import RunState
from footplate.runs.watching import states_now

__all__ = ["list_runs"]


def list_runs(
    *,
    namespace: str | None = None,
    all_namespaces: bool = False,
    labels: str = "",
    context: str | None = None,
    kubeconfig: str | None = None,
) -> list[RunState]:
    """
    Where all runs stand, newest first.

    Args:
        namespace: Left out: that of the kubeconfig's context.
        all_namespaces: Of the whole cluster instead.
        labels: Selector, as kubectl takes it.
    """
    cluster = connect(kubeconfig=kubeconfig, context=context, namespace=namespace)
    chosen = selections_of_many("" if all_namespaces else cluster.namespace, labels)
    things = {
        selection.kind: list(_reduced(cluster, selection))
        for selection in chosen
        if selection.kind in (RAYJOB, WORKLOAD, RAYCLUSTER, POD)
    }
    rayjobs = things.pop(RAYJOB)
    rest = [thing for found in things.values() for thing in found]
    states = states_now(rayjobs, rest, now=time.time())
    return sorted(states, key=lambda state: state.created or 0.0, reverse=True)


def _reduced(cluster: Cluster, selection: Any) -> Iterator[dict[str, Any]]:
    """Page by page, so that a long list is never held whole."""
    try:
        for page, _ in cluster.pages(
            selection.kind,
            namespace=selection.namespace,
            labels=selection.labels,
            fields=selection.fields,
        ):
            for thing in page:
                yield reduced({"kind": selection.kind.kind, **thing})
    except ObjectMissingError:
        return  # no Kueue in this cluster
