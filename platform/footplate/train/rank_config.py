"""What a rank is told."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["RankConfig"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankConfig:
    """
    What a rank is told; plain values, since it travels through Ray.

    Attributes:
        record: The run's record, as JSON.
        attempt: Number of the attempt.
        resume: Name of the checkpoint to go on from, or None.
        data: Name of each data set to its version, as JSON.
        folder: What relative paths of the spec refer to, if the code does not travel.
        reliability: What is known of the attempts before; empty if nothing.
        origin: The checkpoint of another run to start from if there is none of this one, as JSON.
    """

    record: str
    attempt: int
    resume: str | None
    data: dict[str, str]
    folder: str
    reliability: dict[str, Any] = field(default_factory=dict)
    origin: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The form that Ray Train takes."""
        return asdict(self)
