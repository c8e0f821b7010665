"""
Checkpoints: complete or invisible, verified before they are trusted.

Listing, choosing and removing them needs nothing but the store. What reads and writes state
(:mod:`~footplate.checkpoints.publish`, :mod:`~footplate.checkpoints.restore`) needs torch and is
imported from its modules.
"""

from footplate.checkpoints.integrity import find_resume_point
from footplate.checkpoints.listing import committed, counted, counting, is_committed, uncommitted
from footplate.checkpoints.manifest import CheckpointFile, CheckpointManifest, read_manifest
from footplate.checkpoints.retention import (
    collect_older_orphans,
    collect_orphans,
    discard,
    expired,
    prune,
)

__all__ = [
    "CheckpointFile",
    "CheckpointManifest",
    "collect_older_orphans",
    "collect_orphans",
    "committed",
    "counted",
    "counting",
    "discard",
    "expired",
    "find_resume_point",
    "is_committed",
    "prune",
    "read_manifest",
    "uncommitted",
]
