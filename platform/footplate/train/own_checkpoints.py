"""
Checkpoints of a trainer that a script brings itself.

Each attempt has a folder of its own for Ray Train, so that an attempt which does not know yet
that it is over can't write into that of its successor. Ray Train keeps a list of the checkpoints
that all ranks have uploaded; what is not in the list is incomplete.
"""

from __future__ import annotations

import json
from typing import Any

from footplate.errors import ObjectNotFoundError
from footplate.store import AttemptPaths, Store

__all__ = ["TRAINER_NAME", "newest_own_checkpoint"]

TRAINER_NAME = "trainer"
"""What Ray Train calls the trainer of a script, and its folder."""

_LIST = "checkpoint_manager_snapshot.json"


def newest_own_checkpoint(store: Store, attempt: AttemptPaths) -> str | None:
    """
    The folder of the newest complete checkpoint that an attempt's own trainer left, or None.

    Raises:
        StoreError: If the store does not tell.
    """
    folder = f"{attempt.ray}/{TRAINER_NAME}"
    try:
        listed: dict[str, Any] = json.loads(store.get(f"{folder}/{_LIST}"))
        newest = listed["latest_checkpoint_result"]
        name = str(newest["checkpoint_dir_name"]) if newest else None
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        return None  # not begun, or killed while Ray wrote its list
    if name is None or not store.objects(f"{folder}/{name}"):
        return None
    return f"{folder}/{name}"
