"""
Making a checkpoint count: data first, then the manifest, the commit marker last.

Until the marker is there nobody reads the folder, and the marker is only created once every file
is seen in the store with its size and no newer attempt has taken over. The marker holds the
checksum of the manifest; that has those of the ranks' indexes, and they have those of all bytes.
"""

from __future__ import annotations

from footplate.checkpoints.contents import checksum
from footplate.checkpoints.manifest import COMMITTED, MANIFEST, CheckpointManifest
from footplate.errors import CheckpointError
from footplate.store import RunPaths, Store, check_not_fenced

__all__ = ["commit"]


def commit(store: Store, run: RunPaths, manifest: CheckpointManifest) -> None:
    """
    Make a checkpoint count. Called once, when all files are written.

    Raises:
        CheckpointError: If a file is not in the store as it was written.
        FencedError: If a newer attempt has claimed the run.
        StoreError: If the store fails.
    """
    folder = run.checkpoint(manifest.name)
    stored = {info.path: info.size for info in store.objects(folder)}
    for file in manifest.files:
        path = f"{folder}/{file.name}"
        # The listing of a store may lag behind what is in it.
        size = stored[path] if path in stored else store.size(path)
        if size != file.size:
            raise CheckpointError(
                f"{store.locate(path)} has {size} bytes, not the {file.size} written"
            )
    content = manifest.to_json()
    store.put_blocks(f"{folder}/{MANIFEST}", [memoryview(content)], len(content))
    check_not_fenced(store, run, manifest.attempt)
    marker = f"{folder}/{COMMITTED}"
    store.create(marker, checksum(content).encode())
    store.sync(marker)
