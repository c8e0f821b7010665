"""
Writing a checkpoint: data first, then the manifest, the commit marker last.

Until the marker is there nobody reads the folder, and the marker is only created once every file
is seen in the store with its size and no newer attempt has taken over. The marker holds the
checksum of the manifest, which holds those of the files.
"""

from __future__ import annotations

from typing import Any

from footplate.checkpoints.codec import encode_state
from footplate.checkpoints.integrity import checksum
from footplate.checkpoints.manifest import (
    COMMITTED,
    MANIFEST,
    CheckpointFile,
    CheckpointManifest,
)
from footplate.errors import CheckpointError
from footplate.store import CheckpointName, RunPaths, Store, check_not_fenced

__all__ = ["SHARED_FILE", "commit", "rank_file", "write_state"]

SHARED_FILE = "state.safetensors"


def rank_file(rank: int) -> str:
    """Name of the file with what belongs to one rank alone."""
    return f"rank-{rank:05d}.safetensors"


def write_state(
    store: Store, run: RunPaths, name: CheckpointName, file_name: str, state: Any
) -> CheckpointFile:
    """Write one file of a checkpoint."""
    content = encode_state(state)
    store.put(f"{run.checkpoint(name)}/{file_name}", content)
    return CheckpointFile(name=file_name, size=len(content), xxh3=checksum(content))


def commit(store: Store, run: RunPaths, manifest: CheckpointManifest) -> None:
    """
    Make a checkpoint count. Called once, when all files are written.

    Raises:
        CheckpointError: If a file is not in the store as it was written.
        FencedError: If a newer attempt has claimed the run.
    """
    folder = run.checkpoint(manifest.name)
    for file in manifest.files:
        size = store.size(f"{folder}/{file.name}")
        if size != file.size:
            raise CheckpointError(
                f"{store.locate(folder)}/{file.name} has {size} bytes, not the {file.size} written"
            )
    content = manifest.to_json()
    store.put(f"{folder}/{MANIFEST}", content)
    check_not_fenced(store, run, manifest.attempt)
    store.create(f"{folder}/{COMMITTED}", checksum(content).encode())
