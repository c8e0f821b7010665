"""Choosing what to go on from: verified before it is trusted."""

from __future__ import annotations

from collections.abc import Sequence

from footplate.checkpoints.listing import committed, counted
from footplate.checkpoints.manifest import (
    COMMITTED,
    MANIFEST,
    CheckpointFile,
    CheckpointManifest,
    parse_manifest,
)
from footplate.errors import CheckpointError, CheckpointGoneError, ObjectNotFoundError
from footplate.store import CheckpointName, Claim, RunPaths, Store, counted_until

__all__ = ["checksum", "find_resume_point", "read_verified"]


def checksum(content: bytes) -> str:
    """XXH3-64, hexadecimal: against damage, at nearly the speed of memory."""
    import xxhash

    return xxhash.xxh3_64_hexdigest(content)


def find_resume_point(
    store: Store, run: RunPaths, claims: Sequence[Claim]
) -> tuple[CheckpointManifest | None, list[str]]:
    """
    The newest checkpoint that counts and verifies.

    Args:
        claims: Of the run, oldest first.

    Returns:
        Its manifest, or None to start at the beginning; and for each newer one that was passed
        over, why.
    """
    rejected: list[str] = []
    for name in reversed(counted(committed(store, run), counted_until(claims))):
        try:
            return _verified(store, run, name), rejected
        except CheckpointError as error:
            rejected.append(f"{name}: {error.message}")
    return None, rejected


def read_verified(store: Store, run: RunPaths, name: CheckpointName, file: CheckpointFile) -> bytes:
    """
    The content of one file of a checkpoint.

    Raises:
        CheckpointGoneError: If it is missing.
        CheckpointError: If it is not what was written.
    """
    path = f"{run.checkpoint(name)}/{file.name}"
    content = _read(store, path)
    if len(content) != file.size or checksum(content) != file.xxh3:
        raise CheckpointError(
            f"{store.locate(path)} is damaged: {len(content)} of {file.size} bytes, "
            "checksum differs"
        )
    return content


def _verified(store: Store, run: RunPaths, name: CheckpointName) -> CheckpointManifest:
    folder = run.checkpoint(name)
    content = _read(store, f"{folder}/{MANIFEST}")
    if checksum(content).encode() != _read(store, f"{folder}/{COMMITTED}"):
        raise CheckpointError(f"{store.locate(folder)}/{MANIFEST} is damaged: checksum differs")
    manifest = parse_manifest(content)
    for file in manifest.files:
        read_verified(store, run, name, file)
    return manifest


def _read(store: Store, path: str) -> bytes:
    try:
        return store.get(path)
    except ObjectNotFoundError as error:
        raise CheckpointGoneError(f"{store.locate(path)} is missing") from error
