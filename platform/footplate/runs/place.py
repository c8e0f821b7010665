"""Where the run of a name is kept: in a store that is named, in the one here, or in a cluster's."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from footplate.cluster import connect
from footplate.errors import FootplateError, RunNotFoundError, StoreError
from footplate.runs.finding import find_rayjob
from footplate.runs.history import PastRun, find_run_at, find_runs, namespaces
from footplate.runs.looking import read_identity
from footplate.runs.store_view import store_of
from footplate.spec import Store as StoreSection
from footplate.spec import load
from footplate.store import RunPaths, Store, open_store

__all__ = ["StoredAt", "find_place", "find_store"]

_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredAt:
    """A run, and the store that it is in."""

    store: Store
    past: PastRun

    @property
    def run(self) -> RunPaths:
        """Where it stands in the store."""
        return self.past.paths


def find_store(
    place: str | None = None, *, endpoint: str | None = None, region: str | None = None
) -> Store:
    """
    The store of a place.

    Args:
        place: The URI of a store, its folder, or a spec that names it; left out: the folder that
            specs here have if they name none.
        endpoint: Of an S3-compatible server; left out: as the spec or the environment says.
        region: Of the bucket.

    Raises:
        StoreError: If there is none.
        SpecError: If the spec is wrong.
    """
    if place is not None and _is_spec(place):
        return open_store(load(place))
    uri = place or StoreSection().uri
    folder = uri if "://" in uri else str(Path(uri).absolute())
    try:
        return Store(folder, endpoint=endpoint, region=region, create=False)
    except StoreError as error:
        if "://" in uri:
            raise
        raise StoreError(
            f"there is no store in {folder}", "Name one: --store takes a URI, a folder or a spec."
        ) from error


def find_place(
    name: str,
    *,
    store: str | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    uid: str | None = None,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> StoredAt:
    """
    The newest run of a name.

    Looked for in the store, if one is named; otherwise in the store that is here, then in the
    cluster, which tells where its store is.

    Args:
        name: Of the run, or the spec file that it was started with.
        store: See :func:`find_store`.
        uid: Of an older run of that name.
        namespace: Of the run; left out: in a store any, in a cluster the context's.
        context: Of the kubeconfig.
        kubeconfig: File; left out: where kubectl looks.

    Raises:
        RunNotFoundError: If there is none; it says where it was looked for.
        StoreError: If a store can't be read.
        ClusterError: If the cluster fails.
    """
    if _is_spec(name):
        job = load(name)
        return _in_store(open_store(job), job.name, namespace, uid)
    if store is not None:
        found = find_store(store, endpoint=endpoint, region=region)
        return _in_store(found, name, namespace, uid)
    if context is None and kubeconfig is None:
        try:
            return _in_store(find_store(), name, namespace, uid)
        except (RunNotFoundError, StoreError) as error:
            not_here = error
    else:
        not_here = None
    try:
        return _in_cluster(name, uid, namespace, context, kubeconfig)
    except FootplateError as error:
        if not_here is None:
            raise
        raise RunNotFoundError(
            f"{not_here.message}; and no cluster tells of it: {error.message}",
            "Name its store, or the spec that it was started with: --store URI.",
        ) from error


def _is_spec(place: str) -> bool:
    return place.endswith(".toml")


def _in_store(store: Store, name: str, namespace: str | None, uid: str | None) -> StoredAt:
    searched = namespaces(store) if namespace is None else [namespace]
    runs = [past for each in searched for past in find_runs(store, each, name)]
    if uid is not None:
        runs = [past for past in runs if past.record.uid == uid]
    if not runs:
        what = f"run {uid} of {name}" if uid else f"run {name}"
        raise RunNotFoundError(
            f"there is no {what} in {store.uri}", _instead(store, searched, name)
        )
    elsewhere = sorted({past.record.namespace for past in runs})
    if len(elsewhere) > 1:
        raise RunNotFoundError(
            f"{store.uri} has runs {name} of namespaces {' and '.join(elsewhere)}",
            f"Say which: -n {elsewhere[0]}",
        )
    return StoredAt(store=store, past=max(runs, key=lambda past: past.record.created))


def _instead(store: Store, searched: list[str], name: str) -> str:
    names = sorted({there for each in searched for there in store.folders(each)})
    if near := difflib.get_close_matches(name, names, n=3):
        return f"Did you mean {' or '.join(near)}?"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"There are {', '.join(names[:_NAMED])}{more}." if names else "There is no run at all."


def _in_cluster(
    name: str,
    uid: str | None,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
) -> StoredAt:
    cluster = connect(kubeconfig=kubeconfig, context=context, namespace=namespace)
    rayjob = find_rayjob(cluster, name, cluster.namespace)
    current = rayjob["metadata"]["uid"]
    record = read_identity(cluster, name, cluster.namespace, current)
    if record is None:
        raise RunNotFoundError(
            f"{name} has no identity: its submission was interrupted",
            "Run the same footplate submit again; it finishes what is missing.",
        )
    store = store_of(record)
    if uid is not None and uid != current:
        return _in_store(store, name, cluster.namespace, uid)
    past = find_run_at(store, record.paths) or PastRun(record=record, claims=(), result=None)
    return StoredAt(store=store, past=past)
