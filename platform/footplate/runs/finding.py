"""Finding a run by its name, and what to say of a name that is not there."""

from __future__ import annotations

import difflib
from contextlib import suppress
from typing import Any

from footplate.cluster import ALL_NAMESPACES, RAYJOB, Cluster
from footplate.errors import ClusterError, RunNotFoundError
from footplate.runs.marks import NAME_LABEL

__all__ = ["find_rayjob"]

_NAMED = 5


def find_rayjob(cluster: Cluster, name: str, namespace: str) -> dict[str, Any]:
    """
    The RayJob of a name.

    Raises:
        RunNotFoundError: If there is none; it says what there is instead.
    """
    rayjob = cluster.find(RAYJOB, name, namespace=namespace)
    if rayjob is None:
        raise RunNotFoundError(
            f"there is no run {name} in namespace {namespace}", _instead(cluster, name, namespace)
        )
    return rayjob


def _instead(cluster: Cluster, name: str, namespace: str) -> str:
    """What may have been meant; whoever may not see it is told how to look."""
    if elsewhere := _namespaces_with(cluster, name):
        return f"There is one in namespace {' and in '.join(elsewhere)}: add -n {elsewhere[0]}"
    names = _names_in(cluster, namespace)
    if names is None:
        return f"footplate list -n {namespace} shows those that are there."
    if not names:
        return "There is no run at all in that namespace; footplate list -A looks in all of them."
    if near := difflib.get_close_matches(name, names, n=3):
        return f"Did you mean {' or '.join(near)}?"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"There are {', '.join(names[:_NAMED])}{more}."


def _namespaces_with(cluster: Cluster, name: str) -> list[str]:
    """Other namespaces where a run of that name is, if one may look."""
    with suppress(ClusterError):
        found = cluster.list(
            RAYJOB,
            namespace=ALL_NAMESPACES,
            labels=NAME_LABEL,
            fields=f"metadata.name={name}",
        )
        return sorted(each["metadata"]["namespace"] for each in found)
    return []


def _names_in(cluster: Cluster, namespace: str) -> list[str] | None:
    """Names of runs, those of the first page alone; None if one may not look."""
    with suppress(ClusterError):
        page, _ = next(cluster.pages(RAYJOB, namespace=namespace, labels=NAME_LABEL), ([], ""))
        return sorted(each["metadata"]["name"] for each in page)
    return None
