"""What space checkpoints take, from one listing of all that is stored of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from footplate.checkpoints.listing import Listed
from footplate.checkpoints.manifest import COMMITTED, DAMAGED
from footplate.store import CheckpointName, ObjectInfo, RunPaths, Store

__all__ = ["CheckpointSizes", "checkpoint_sizes"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSizes:
    """
    The checkpoint folders of a run and their sizes, counted while a listing goes by.

    Attributes:
        bytes: Of each folder.
        markers: Names of the markers in each.
    """

    run: RunPaths
    bytes: dict[CheckpointName, int] = field(default_factory=lambda: defaultdict(int))
    markers: dict[CheckpointName, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, info: ObjectInfo) -> bool:
        """Count an object, if it is of a checkpoint; say whether it is."""
        below = info.path.removeprefix(f"{self.run.checkpoints}/")
        folder, _, file = below.partition("/")
        name = CheckpointName.parse(folder) if below != info.path else None
        if name is None:
            return False
        self.bytes[name] += info.size
        if file in (COMMITTED, DAMAGED):
            self.markers[name].add(file)
        return True

    def listed(self) -> Listed:
        """The same folders by what they are."""
        complete = [name for name in sorted(self.bytes) if COMMITTED in self._of(name)]
        return Listed(
            committed=tuple(name for name in complete if DAMAGED not in self._of(name)),
            damaged=tuple(name for name in complete if DAMAGED in self._of(name)),
            uncommitted=tuple(n for n in sorted(self.bytes) if COMMITTED not in self._of(n)),
        )

    def _of(self, name: CheckpointName) -> set[str]:
        return self.markers.get(name, set())


def checkpoint_sizes(store: Store, run: RunPaths) -> CheckpointSizes:
    """
    The checkpoint folders of a run and their sizes.

    Raises:
        StoreError: If the store does not tell.
    """
    sizes = CheckpointSizes(run=run)
    for info in store.stored(run.checkpoints):
        sizes.add(info)
    return sizes
