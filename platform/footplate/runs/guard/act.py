"""What the guard wants to do, as data: what a dry run prints is what would be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from footplate.cluster import Kind
from footplate.runs.guard.world import Object, Reference

__all__ = ["Act", "Deed", "Deletion", "Patch", "patch_of"]


@dataclass(frozen=True, slots=True)
class Deletion:
    """Delete exactly this object; a ``grace_period_s`` of 0 does not wait for its node."""

    target: Reference
    grace_period_s: int | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch that is refused if the object has changed since it was read."""

    target: Reference
    body: Mapping[str, Any]


class Deed(StrEnum):
    """The kinds of acts."""

    REPLACE_POD = "replace pod"
    RELEASE_QUOTA = "release quota"
    PAUSE = "pause"
    RESUME = "resume"
    SETTLE = "settle"


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """
    One thing to be done.

    Attributes:
        target: What it is done to.
        rayjob: Whose job it is done for; gets the Event.
        reason: Of the Event; empty for bookkeeping, which nobody needs to hear of.
        sentence: What is done and why, with the values.
        steps: What is sent, in this order; to do them again does no harm.
        after_s: For how many seconds it must have been wanted, without a break.
    """

    deed: Deed
    target: Reference
    rayjob: Reference
    reason: str
    sentence: str
    steps: tuple[Deletion | Patch, ...]
    after_s: float = 0.0


def patch_of(kind: Kind, found: Object, body: Mapping[str, Any]) -> Patch:
    """A merge patch of an object as it was read."""
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    metadata = {**body.get("metadata", {}), **version}
    return Patch(Reference.to(kind, found), {**body, "metadata": metadata})
