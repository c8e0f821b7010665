"""
The checkpoint of another run that a run starts from.

It is looked for once, before anything of the new run is there, and written down in the run's
folder: later attempts start from the same one, whatever the other run has saved since.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from footplate.checkpoints.integrity import newest_whole, read_checked
from footplate.checkpoints.listing import counting
from footplate.checkpoints.manifest import COMMITTED, CheckpointManifest
from footplate.checkpoints.pins import Pin, pin, unpin
from footplate.errors import (
    CheckpointError,
    CheckpointGoneError,
    ObjectExistsError,
    ObjectNotFoundError,
    RunNotFoundError,
)
from footplate.spec import InitFrom, Job
from footplate.store import (
    CheckpointName,
    RunPaths,
    RunRecord,
    Store,
    read_claims,
    read_record,
    read_record_if_there,
    to_json,
)

__all__ = ["Origin", "find_origin", "let_go", "pinning_run", "settle_origin"]

_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PIN_PREFIX = "init-"
_TRIES = 3
_NAMED = 5


class Origin(BaseModel):
    """
    What a run starts from: ``init.json``.

    Attributes:
        uri: Of the store that the checkpoint is in.
        folder: Of the checkpoint, relative to that store.
        checkpoint: Its name, by which it can be told apart if the folder was copied.
        of: The run that wrote it, or the folder it was named by; for people.
        step: Optimizer steps done.
        what: Whether models alone are taken from it, or all of its state and its place.
        pinned: Whether this run has a pin on it, as in a store of its own. Elsewhere nothing is
            written or removed.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    uri: str
    endpoint: str | None = None
    region: str | None = None
    folder: str
    checkpoint: str
    of: str
    step: int
    what: Literal["weights", "everything"]
    pinned: bool = False

    def __str__(self) -> str:
        return f"{self.what} of {self.of} at step {self.step}"

    def open(self) -> tuple[Store, CheckpointManifest]:
        """
        The store that the checkpoint is in, and its manifest.

        Raises:
            CheckpointError: If it is not there any more, or not what was written.
            StoreError: If the store fails.
        """
        store = _open(self.uri, self.endpoint, self.region)
        manifest = read_checked(store, self.folder)
        if str(manifest.name) != self.checkpoint:
            raise CheckpointError(
                f"{store.locate(self.folder)} holds {manifest.name}, not {self.checkpoint} any more"
            )
        return store, manifest


def settle_origin(job: Job, store: Store, run: RunPaths) -> Origin | None:
    """
    What a run starts from, once and for all; None for the beginning.

    Raises:
        RunNotFoundError: If there is no such run.
        CheckpointError: If it has no such checkpoint, or none that is whole.
        StoreError: If a store fails.
    """
    origin = read_record_if_there(store, run.init, Origin)
    if origin is None:
        if job.init_from is None:
            return None
        origin = _written_down(store, run, find_origin(job, store, run))
    # Of a run that has a checkpoint of its own it was let go.
    for _ in range(_TRIES):
        if not origin.pinned or counting(store, run):
            return origin
        try:
            _pin(store, run, origin)
            return origin
        except CheckpointGoneError:  # removed meanwhile, for newer ones
            if job.init_from is None:
                raise
            store.put(run.init, to_json(find_origin(job, store, run)))
            origin = read_record(store, run.init, Origin)
    raise CheckpointGoneError(
        f"the checkpoints of {origin.of} are removed as soon as they are made"
    )


def let_go(origin: Origin, run: RunPaths) -> None:
    """
    Let the other run remove its checkpoint, now that this one has a checkpoint of its own.

    Raises:
        StoreError: If the store fails.
    """
    if origin.pinned and (there := _run_of(origin.folder)) is not None:
        unpin(_open(origin.uri, origin.endpoint, origin.region), there, _pin_name(run))


def pinning_run(pin_name: str) -> str | None:
    """The UID of the run that a pin holds a checkpoint for, if it is one to start from."""
    return pin_name.removeprefix(_PIN_PREFIX) if pin_name.startswith(_PIN_PREFIX) else None


def find_origin(job: Job, store: Store, run: RunPaths) -> Origin:
    """
    The checkpoint that ``init_from`` of a job names now.

    Args:
        store: Of the run that is to start.
        run: The run that is to start; its namespace is where other runs are looked for.

    Raises:
        RunNotFoundError: If there is no such run.
        CheckpointError: If it has no such checkpoint, or none that is whole.
        StoreError: If a store fails.
    """
    wanted = job.init_from
    assert wanted is not None
    if wanted.uri is not None:
        endpoint = wanted.endpoint or job.store.endpoint
        region = wanted.region or job.store.region
        origin = _at_uri(wanted, job.path(wanted.uri).rstrip("/"), endpoint, region)
    else:
        assert wanted.run is not None
        origin = _of_run(wanted, store, _find_run(store, run, wanted.run))
    is_own = origin.uri == store.uri and _run_of(origin.folder) is not None
    return origin.model_copy(update={"pinned": is_own})


def _written_down(store: Store, run: RunPaths, origin: Origin) -> Origin:
    """What is written down by now: by this driver, or by one that was faster."""
    try:
        store.create(run.init, to_json(origin))
    except ObjectExistsError:
        return read_record(store, run.init, Origin)
    return origin


def _pin(store: Store, run: RunPaths, origin: Origin) -> None:
    """See to it that nobody removes a checkpoint of the same store while a run needs it."""
    there, name = _run_of(origin.folder), CheckpointName.parse(origin.checkpoint)
    assert there is not None
    assert name is not None
    held = read_record_if_there(store, there.pin(_pin_name(run)), Pin)
    if held is not None and held.checkpoint != origin.checkpoint:
        unpin(store, there, _pin_name(run))
    by = f"run {run.name} ({run.uid})"
    pin(store, there, _pin_name(run), name, by=by, time=time.time())


def _pin_name(run: RunPaths) -> str:
    return f"{_PIN_PREFIX}{run.uid}"


def _run_of(folder: str) -> RunPaths | None:
    """The run that a checkpoint's folder belongs to, if it lies where runs have them."""
    match folder.split("/"):
        case [namespace, name, uid, "checkpoints", _]:
            return RunPaths(namespace=namespace, name=name, uid=uid)
    return None


def _find_run(store: Store, run: RunPaths, wanted: str) -> RunPaths:
    """The run of a UID, or the newest of a name, but for the run that is to start itself."""
    names = store.folders(run.namespace)
    if _UID.fullmatch(wanted):
        for name in names:
            paths = RunPaths(namespace=run.namespace, name=name, uid=wanted)
            if store.size(paths.record) is not None:
                return paths
    records = [
        record
        for uid in store.folders(f"{run.namespace}/{wanted}")
        if uid != run.uid and (record := _record(store, run.namespace, wanted, uid)) is not None
    ]
    if not records:
        raise RunNotFoundError(
            f"there is no {'other ' if wanted == run.name else ''}run {wanted} in "
            f"{store.locate(run.namespace)}",
            _instead(wanted, [name for name in names if name != wanted]),
        )
    return max(records, key=lambda record: record.created).paths


def _record(store: Store, namespace: str, name: str, uid: str) -> RunRecord | None:
    paths = RunPaths(namespace=namespace, name=name, uid=uid)
    return read_record_if_there(store, paths.record, RunRecord)


def _instead(wanted: str, names: Sequence[str]) -> str:
    if near := difflib.get_close_matches(wanted, names, n=3):
        return f"Did you mean {' or '.join(near)}?"
    if not names:
        return "There is none to start from; another store is named by init_from.uri."
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"There are {', '.join(names[:_NAMED])}{more}; another store is named by init_from.uri."


def _of_run(wanted: InitFrom, store: Store, run: RunPaths) -> Origin:
    """The newest whole checkpoint of a run, or that of a step."""
    if wanted.step is None:
        manifest, rejected = newest_whole(store, run, read_claims(store, run))
        if manifest is None:
            raise CheckpointError(
                f"run {run.name} ({run.uid}) has no checkpoint to start from", "\n".join(rejected)
            )
    else:
        manifest = read_checked(store, run.checkpoint(_of_step(store, run, wanted.step)))
    return Origin(
        uri=store.uri,
        endpoint=store.endpoint,
        region=store.region,
        folder=run.checkpoint(manifest.name),
        checkpoint=str(manifest.name),
        of=f"run {run.name} ({run.uid})",
        step=manifest.step,
        what=wanted.what,
    )


def _of_step(store: Store, run: RunPaths, step: int) -> CheckpointName:
    names = counting(store, run)
    found = [name for name in names if name.step == step]
    if not found:
        steps = ", ".join(str(name.step) for name in names)
        raise CheckpointError(
            f"run {run.name} ({run.uid}) has no checkpoint of step {step}",
            f"Those that it has are of the steps {steps}." if steps else "It has none at all.",
        )
    return found[-1]


def _at_uri(wanted: InitFrom, uri: str, endpoint: str | None, region: str | None) -> Origin:
    """A checkpoint by its folder, or by that of its run."""
    scheme, separator, path = uri.rpartition("://")
    above, _, last = path.rpartition("/")
    if separator and not above:
        raise _neither(uri)  # all of a bucket
    store = _open(f"{scheme}{separator}{above or '/'}", endpoint, region)
    if store.size(f"{last}/{COMMITTED}") is None:
        return _of_run(wanted, *_run_at(uri, endpoint, region))
    manifest = read_checked(store, last)
    if wanted.step not in (None, manifest.step):
        raise CheckpointError(f"{uri} is of step {manifest.step}, not {wanted.step}")
    return Origin(
        uri=store.uri,
        endpoint=endpoint,
        region=region,
        folder=last,
        checkpoint=str(manifest.name),
        of=uri,
        step=manifest.step,
        what=wanted.what,
    )


def _run_at(uri: str, endpoint: str | None, region: str | None) -> tuple[Store, RunPaths]:
    """The run of a folder, and the store that it is in."""
    scheme, separator, path = uri.rpartition("://")
    match path.rsplit("/", 3):
        case [root, namespace, name, uid] if root:
            store = _open(f"{scheme}{separator}{root}", endpoint, region)
            run = RunPaths(namespace=namespace, name=name, uid=uid)
            if store.size(run.record) is not None:
                return store, run
    raise _neither(uri)


def _neither(uri: str) -> CheckpointError:
    return CheckpointError(
        f"{uri} is the folder of neither a run nor a checkpoint",
        "A run's folder holds run.json, a checkpoint's COMMITTED.",
    )


def _open(uri: str, endpoint: str | None, region: str | None) -> Store:
    """A store that others write to."""
    try:
        return Store(uri, endpoint=endpoint, region=region, create=False)
    except ObjectNotFoundError as error:
        raise CheckpointError(f"{uri} is not there") from error
