"""Where an attempt begins, if not at the beginning."""

from __future__ import annotations

from dataclasses import dataclass

from footplate.checkpoints import CheckpointManifest
from footplate.checkpoints.restore import CheckpointReader

__all__ = ["Start"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """
    A saved state to begin with.

    Attributes:
        is_own: Of this run; otherwise of another one, which this one begins from.
        everything: The run goes on as if it were that one. Otherwise models alone are taken over.
    """

    manifest: CheckpointManifest
    reader: CheckpointReader
    is_own: bool = True
    everything: bool = True

    @property
    def step(self) -> int:
        """Optimizer steps that are done already."""
        return self.manifest.step if self.everything else 0

    @property
    def position(self) -> int:
        """Samples that are done with already."""
        return self.manifest.position if self.everything else 0
