"""Where the user's code is, on whichever node this runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

from footplate.store import RunRecord, Store
from footplate.train.code import unpack

__all__ = ["working_folder"]


def working_folder(record: RunRecord, store: Store, given: Path) -> Path:
    """
    What relative paths of a run's spec refer to, on this node.

    Args:
        given: The folder, if the code does not travel with the run.

    Raises:
        StoreError: If the code can't be fetched.
    """
    if "archive" not in record.code:
        return given
    return unpack(record, store, Path(tempfile.gettempdir()) / "footplate" / "code")
