"""
Checkpoints: complete or invisible, verified before they are trusted.

Listing, choosing and removing them needs nothing but the store. What reads and writes state
(:mod:`~footplate.checkpoints.publish`, :mod:`~footplate.checkpoints.restore`) needs torch and is
imported from its modules.
"""

from footplate.checkpoints.integrity import find_resume_point
from footplate.checkpoints.listing import (
    Listed,
    committed,
    counted,
    counting,
    is_committed,
    is_damaged,
    list_checkpoints,
    uncommitted,
)
from footplate.checkpoints.manifest import CheckpointFile, CheckpointManifest, read_manifest
from footplate.checkpoints.pins import Pin, pin, pinned, read_pins, unpin
from footplate.checkpoints.removal import Remover, discard
from footplate.checkpoints.retention import (
    Facts,
    Retention,
    collect_older_orphans,
    collect_orphans,
    kept,
    kept_for,
    orphans,
    unknown_metric,
)

__all__ = [
    "CheckpointFile",
    "CheckpointManifest",
    "Facts",
    "Listed",
    "Pin",
    "Remover",
    "Retention",
    "collect_older_orphans",
    "collect_orphans",
    "committed",
    "counted",
    "counting",
    "discard",
    "find_resume_point",
    "is_committed",
    "is_damaged",
    "kept",
    "kept_for",
    "list_checkpoints",
    "orphans",
    "pin",
    "pinned",
    "read_manifest",
    "read_pins",
    "uncommitted",
    "unknown_metric",
    "unpin",
]
