"""All runs of a namespace, or of a cluster, at one moment."""

from __future__ import annotations

import time

from footplate.cluster import ALL_NAMESPACES, RAYJOB, connect
from footplate.runs.looking import reduced, selections_of_many, survey
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
    where = ALL_NAMESPACES if all_namespaces else cluster.namespace
    jobs, *others = selections_of_many(where, labels)
    rayjobs = cluster.list(RAYJOB, namespace=where, labels=jobs.labels, reduce=reduced)
    things, unseen = survey(cluster, others, reduce=reduced) if rayjobs else ([], frozenset())
    now = time.time() + cluster.clock_offset_s
    states = states_now(rayjobs, things, now=now, unseen=unseen)
    return sorted(states, key=lambda state: state.created or 0.0, reverse=True)
