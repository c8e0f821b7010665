"""Reading state back."""

from __future__ import annotations

from typing import Any

from footplate.checkpoints.codec import decode_state
from footplate.checkpoints.integrity import read_verified
from footplate.checkpoints.manifest import CheckpointManifest
from footplate.store import RunPaths, Store

__all__ = ["read_state"]


def read_state(
    store: Store, run: RunPaths, manifest: CheckpointManifest, file_name: str
) -> Any | None:
    """
    The state in one file of a checkpoint, or None if it has no such file.

    Raises:
        CheckpointGoneError: If the file is missing.
        CheckpointError: If it is changed or malformed.
    """
    files = {file.name: file for file in manifest.files}
    if file_name not in files:
        return None
    return decode_state(read_verified(store, run, manifest.name, files[file_name]))
