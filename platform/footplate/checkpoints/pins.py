"""
Pins: checkpoints that stay whatever the policy says, each pin under a name of its own.

A pin is a small record beside the checkpoints. Whoever pins puts it there first and looks then
whether the checkpoint is still there; whoever removes one looks for pins once its commit marker
is taken away.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict

from footplate.checkpoints.listing import is_committed
from footplate.errors import CheckpointError, CheckpointGoneError, ObjectExistsError
from footplate.store import (
    CheckpointName,
    RunPaths,
    Store,
    read_record,
    read_record_if_there,
    to_json,
)

__all__ = ["Pin", "pin", "pinned", "read_pins", "unpin"]

_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,63}")


class Pin(BaseModel):
    """
    Why a checkpoint stays.

    Attributes:
        checkpoint: Its name.
        by: Who wants it, for people.
        time: When it was pinned, in seconds since the epoch.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    checkpoint: str
    by: str
    time: float


def pin(
    store: Store, run: RunPaths, pin_name: str, checkpoint: CheckpointName, *, by: str, time: float
) -> None:
    """
    Let a checkpoint stay; doing it again is no error.

    Args:
        pin_name: Letters, digits, dashes, dots and underscores.

    Raises:
        CheckpointError: If that is no name, or the pin of that name holds another checkpoint.
        CheckpointGoneError: If the checkpoint is not there.
    """
    if not _NAME.fullmatch(pin_name):
        raise CheckpointError(
            f"{pin_name!r} is no name of a pin",
            "Use letters, digits, dashes, dots and underscores, at most 64.",
        )
    record = Pin(checkpoint=str(checkpoint), by=by, time=time)
    try:
        store.create(run.pin(pin_name), to_json(record))
    except ObjectExistsError as error:
        there = read_record(store, run.pin(pin_name), Pin)
        if there.checkpoint != record.checkpoint:
            raise CheckpointError(
                f"the pin {pin_name} is on {there.checkpoint}, since {there.by} put it there",
                "Unpin that one first, or take another name.",
            ) from error
    if not is_committed(store, run, checkpoint):
        store.delete(run.pin(pin_name))
        raise CheckpointGoneError(f"{checkpoint} of {run.name} is not there any more")


def unpin(store: Store, run: RunPaths, pin_name: str) -> None:
    """Take a pin away; one that is not there is no error."""
    store.delete(run.pin(pin_name))


def read_pins(store: Store, run: RunPaths) -> dict[str, Pin]:
    """
    All pins of a run by their names, sorted.

    Raises:
        StoreError: If one can't be read: nothing may be removed then.
    """
    names = [PurePosixPath(info.path).stem for info in store.objects(run.pins)]
    found = {name: read_record_if_there(store, run.pin(name), Pin) for name in names}
    return {name: pin for name, pin in found.items() if pin is not None}


def pinned(store: Store, run: RunPaths) -> set[CheckpointName]:
    """The checkpoints that are pinned."""
    parsed = (CheckpointName.parse(pin.checkpoint) for pin in read_pins(store, run).values())
    return {name for name in parsed if name is not None}
