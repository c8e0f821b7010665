"""Where the user's code is, on whichever node this runs."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from footplate.spec import Job
from footplate.store import RunRecord, Store, open_store
from footplate.store.patience import Pace, Patience, patiently
from footplate.train.code import unpack

__all__ = ["fetch_code", "working_folder"]

_PATIENCE = Patience()


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


def fetch_code(record: str, folder: Path, patience: Patience = _PATIENCE) -> None:
    """
    Have the user's code on this node, where perhaps no rank has unpacked it.

    A store that fails is asked again, as for the data: this is a matter of a task, not of a rank.

    Args:
        record: Of the run, as JSON.
        folder: Where the code is on the nodes of the ranks, and so on this one.

    Raises:
        StoreError: If the code can't be fetched, for too long or for good.
    """
    if folder.is_dir():
        return
    run = RunRecord.model_validate_json(record)
    store = open_store(Job.from_dict(run.spec, folder=folder, source=run.name))
    patiently(
        lambda: working_folder(run, store, folder), patience, Pace(1), stopped=threading.Event()
    )
