"""Choosing what to go on from, and finding out whether it is what was written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from footplate.checkpoints.contents import (
    Contents,
    check_files,
    check_whole,
    checksum,
    read_contents,
    read_small,
    tensor_nodes,
)
from footplate.checkpoints.index import Piece, own_prefix
from footplate.checkpoints.listing import counted, is_committed, list_checkpoints, told_of
from footplate.checkpoints.manifest import (
    COMMITTED,
    DAMAGED,
    MANIFEST,
    CheckpointManifest,
    parse_manifest,
)
from footplate.checkpoints.reading import PieceFiles
from footplate.errors import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointGoneError,
    ObjectExistsError,
)
from footplate.store import CheckpointName, Claim, RunPaths, Store, counted_until

__all__ = [
    "checksum",
    "find_resume_point",
    "mark_damaged",
    "newest_whole",
    "read_checked",
    "read_committed",
    "verify",
    "verify_folder",
]

Progress = Callable[[int, int], None]
"""Hears how many bytes of how many are done; called from several threads."""

_TRIES = 3


def find_resume_point(
    store: Store, run: RunPaths, claims: Sequence[Claim]
) -> tuple[CheckpointManifest | None, list[str]]:
    """
    The newest checkpoint that counts and, as far as can be told quickly, is whole.

    The bytes of its tensors are verified by those who read them.

    Args:
        claims: Of the run, oldest first.

    Returns:
        Its manifest, or None to start at the beginning; and for each newer one that was passed
        over, why.

    Raises:
        CheckpointError: If there are checkpoints that count, but all of them are damaged; or the
            newest whole one is of another format: to start over is for the user to say.
        StoreError: If the store does not tell.
    """
    manifest, rejected = newest_whole(store, run, claims)
    if manifest is None and rejected:
        raise CheckpointError(
            "\n  ".join((f"no checkpoint of {run.name} can be gone on from:", *rejected)),
            f"Look at them with: footplate checkpoints verify {run.name} STEP; remove what is of "
            "no use with footplate checkpoints delete, or start over with --fresh.",
        )
    return manifest, rejected


def newest_whole(
    store: Store, run: RunPaths, claims: Sequence[Claim]
) -> tuple[CheckpointManifest | None, list[str]]:
    """
    The newest checkpoint that counts and is whole, as for :func:`find_resume_point`.

    Returns:
        Its manifest, and for each newer one that was passed over, why; without a manifest the
        reasons are those of all that count, found damaged before or now.

    Raises:
        CheckpointError: If it is of another format, or malformed.
        StoreError: If the store does not tell.
    """
    bounds = counted_until(claims)
    for _ in range(_TRIES):
        listed = list_checkpoints(store, run)
        manifest, rejected, is_gone = _newest_of(store, run, counted(listed.committed, bounds))
        if manifest is not None:
            return manifest, rejected
        if not is_gone:
            break
        # An older attempt that still lives has removed it for a newer one.
    if not listed.committed and not listed.damaged:
        # A listing may lag behind what is there; but the first one that is missed costs all.
        told = counted(told_of(store, run, claims), bounds)
        manifest, rejected, _ = _newest_of(store, run, told)
        if manifest is not None:
            return manifest, rejected
    marked = reversed(counted(listed.damaged, bounds))
    return None, [*rejected, *(f"{name}: it is marked as damaged" for name in marked)]


def read_committed(
    store: Store, folder: str, name: CheckpointName | None = None
) -> CheckpointManifest:
    """
    The manifest of a checkpoint as it was committed; nothing else is looked at.

    Args:
        name: Of the checkpoint that should be in that folder.

    Raises:
        CheckpointDamagedError: If it is not what was written, or that of another checkpoint.
        CheckpointGoneError: If it is missing, or the commit marker.
        CheckpointError: If it is malformed.
        StoreError: If the store fails.
    """
    content = read_small(store, f"{folder}/{MANIFEST}")
    if checksum(content).encode() != read_small(store, f"{folder}/{COMMITTED}"):
        raise CheckpointDamagedError(
            f"{store.locate(folder)}/{MANIFEST} is damaged: checksum differs"
        )
    manifest = parse_manifest(content)
    if name not in (None, manifest.name):
        raise CheckpointDamagedError(f"{store.locate(folder)} holds {manifest.name}")
    return manifest


def read_checked(
    store: Store, folder: str, name: CheckpointName | None = None
) -> CheckpointManifest:
    """
    The manifest of a checkpoint, once everything but the bytes of its tensors is verified.

    Args:
        name: Of the checkpoint that should be in that folder.

    Raises:
        CheckpointDamagedError: If something is not what was written.
        CheckpointGoneError: If something is missing.
        CheckpointError: If it is of another format, or malformed.
        StoreError: If the store fails.
    """
    manifest, _ = _read_checked(store, folder, name)
    return manifest


def _read_checked(
    store: Store, folder: str, name: CheckpointName | None
) -> tuple[CheckpointManifest, Contents]:
    """The manifest as for :func:`read_checked`, and what was read to check it."""
    manifest = read_committed(store, folder, name)
    check_files(manifest)
    sizes = {info.path: info.size for info in store.objects(folder)}
    for file in manifest.files:
        path = f"{folder}/{file.name}"
        # A listing may lag behind what is there.
        size = sizes[path] if path in sizes else store.size(path)
        if size is None:
            raise CheckpointGoneError(f"{store.locate(path)} is missing")
        if size != file.size:
            raise CheckpointDamagedError(
                f"{store.locate(path)} is damaged: {size} of {file.size} bytes"
            )
    return manifest, read_contents(store, folder, manifest)


def verify(
    store: Store, run: RunPaths, name: CheckpointName, *, progress: Progress | None = None
) -> list[str]:
    """
    What of a checkpoint is damaged or missing, down to every byte of its tensors.

    Args:
        progress: Hears how many bytes of how many are done; called from several threads.

    Raises:
        CheckpointError: If it is of another format or malformed, which no damage explains.
        StoreError: If the store fails.
    """
    return verify_folder(store, run.checkpoint(name), name, progress=progress)


def verify_folder(
    store: Store,
    folder: str,
    name: CheckpointName | None = None,
    *,
    progress: Progress | None = None,
) -> list[str]:
    """What of a checkpoint is damaged or missing, wherever it is; see :func:`verify`."""
    try:
        _, contents = _read_checked(store, folder, name)
    except (CheckpointDamagedError, CheckpointGoneError) as error:
        return [error.message]
    _check_complete(contents)
    return _damaged(store, folder, contents, progress)


def mark_damaged(store: Store, run: RunPaths, name: CheckpointName, why: str) -> None:
    """
    Let a checkpoint count no more, for what is in it is not what was written.

    Args:
        why: For people. Of several reasons the first one stays.

    Raises:
        StoreError: If that can't be written.
    """
    with suppress(ObjectExistsError):
        store.create(f"{run.checkpoint(name)}/{DAMAGED}", why.encode())


def _newest_of(
    store: Store, run: RunPaths, names: Sequence[CheckpointName]
) -> tuple[CheckpointManifest | None, list[str], bool]:
    """The newest whole one of some, why others were passed over, and whether one was removed."""
    rejected: list[str] = []
    is_gone = False
    for name in reversed(names):
        try:
            return read_checked(store, run.checkpoint(name), name), rejected, is_gone
        except (CheckpointDamagedError, CheckpointGoneError) as error:
            rejected.append(f"{name}: {error.message}")
            is_gone = is_gone or not is_committed(store, run, name)
        except CheckpointError as error:
            raise CheckpointError(f"{name}: {error.message}", error.hint) from error
    return None, rejected, is_gone


def _check_complete(contents: Contents) -> None:
    """Make sure that all tensors are all there."""
    for key, tensor in contents.tensors.items():
        check_whole(key, tensor)
    trees = [(f"{name}/", tree) for name, tree in contents.shared.items()]
    trees += [(f"{own_prefix(rank)}/", tree) for rank, tree in enumerate(contents.own)]
    for prefix, tree in trees:
        for key, _ in tensor_nodes(tree):
            if key not in contents.tensors or not key.startswith(prefix):
                raise CheckpointError(f"there is no tensor {key}")


def _damaged(store: Store, folder: str, contents: Contents, progress: Progress | None) -> list[str]:
    """Pieces that are not what was written."""
    pieces = [piece for tensor in contents.tensors.values() for piece in tensor.pieces]
    pieces.sort(key=lambda each: (each[0], each[1].start))
    total = sum(piece.bytes for _, piece in pieces)
    found: dict[str, None] = {}
    lock = threading.Lock()
    done = 0

    with PieceFiles(store, folder) as files:

        def check(each: tuple[int, Piece]) -> None:
            nonlocal done
            try:
                files.verify(*each)
            except (CheckpointDamagedError, CheckpointGoneError) as error:
                found[error.message] = None
            with lock:
                done += each[1].bytes
                if progress is not None:
                    progress(done, total)

        files.each(check, pieces)
    return sorted(found)
