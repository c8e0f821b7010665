"""How many samples an epoch has, from manifests alone."""

from __future__ import annotations

from collections.abc import Sequence

from footplate.data.manifest import DataManifest
from footplate.errors import DataError
from footplate.spec import Pack

__all__ = ["epoch_samples", "group_values"]


def epoch_samples(manifests: Sequence[DataManifest], pack: Pack | None) -> int:
    """
    Samples of an epoch: all rows of all parts, or the sequences that each part is packed into.

    Raises:
        DataError: If what is to be packed is no column of lists, or not enough for a sequence.
    """
    if pack is None:
        return sum(manifest.rows for manifest in manifests)
    return sum(_sequences(manifest, pack) for manifest in manifests)


def _sequences(manifest: DataManifest, pack: Pack) -> int:
    values = sum(group_values(manifest, pack.column))
    if values < pack.length:
        raise DataError(
            f"column {pack.column} of data set {manifest.name} has {values} values, and a packed "
            f"sequence {pack.length}",
            "Choose a smaller length, or more data.",
        )
    return values // pack.length


def group_values(manifest: DataManifest, column: str) -> list[int]:
    """
    Values in the lists of each row group.

    Raises:
        DataError: If the data set has no such column, or it does not hold lists.
    """
    names = [field.name for field in manifest.fields]
    if column not in names:
        raise DataError(
            f"data set {manifest.name} has no column {column}",
            f"Its columns are {', '.join(names)}.",
        )
    index = names.index(column)
    counts = [group.values[index] for file in manifest.files for group in file.row_groups]
    known = [count for count in counts if count is not None]
    if len(known) != len(counts):
        raise DataError(
            f"column {column} of data set {manifest.name} does not hold lists, which packing joins"
        )
    return known
