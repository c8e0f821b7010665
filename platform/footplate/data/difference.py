"""What differs between two manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from footplate.data.manifest import DataFile, DataManifest, RowGroup

__all__ = ["FileChange", "ManifestDifference", "difference"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """
    A file of one path and another content.

    Attributes:
        path: Relative to both manifests.
        before: As the first manifest describes it.
        after: As the second does.
        row_groups: Numbers of those that differ; one that only one of the files has is among them.
    """

    path: str
    before: DataFile
    after: DataFile
    row_groups: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestDifference:
    """
    What one manifest has and the other has not.

    Attributes:
        names: Of both data sets, if they differ.
        fields: A sentence for each column that differs.
        added: Files that the second has alone.
        removed: Files that the first has alone.
        changed: Files of both with another content.
        reordered: Whether the files of both come in another order, and so their samples.
        rows: Samples of both.
    """

    names: tuple[str, str] | None
    fields: tuple[str, ...]
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    changed: tuple[FileChange, ...]
    reordered: bool
    rows: tuple[int, int]

    def __bool__(self) -> bool:
        lists = (self.names, self.fields, self.added, self.removed, self.changed)
        return self.reordered or any(lists)


def difference(before: DataManifest, after: DataManifest) -> ManifestDifference:
    """Compare two manifests; true if they describe other data."""
    old = {file.path: file for file in before.files}
    new = {file.path: file for file in after.files}
    both = [path for path in old if path in new]
    return ManifestDifference(
        names=(before.name, after.name) if before.name != after.name else None,
        fields=_fields(before, after),
        added=tuple(file for path, file in new.items() if path not in old),
        removed=tuple(file for path, file in old.items() if path not in new),
        changed=tuple(
            FileChange(
                path=path,
                before=old[path],
                after=new[path],
                row_groups=_row_groups(old[path].row_groups, new[path].row_groups),
            )
            for path in both
            if old[path].sha256 != new[path].sha256
        ),
        reordered=both != [path for path in new if path in old],
        rows=(before.rows, after.rows),
    )


def _fields(before: DataManifest, after: DataManifest) -> tuple[str, ...]:
    old = {field.name: field.form for field in before.fields}
    new = {field.name: field.form for field in after.fields}
    told = [f"column {name!r} ({form}) is gone" for name, form in old.items() if name not in new]
    told += [f"column {name!r} ({form}) is new" for name, form in new.items() if name not in old]
    told += [
        f"column {name!r} is {new[name]}, was {form}"
        for name, form in old.items()
        if new.get(name, form) != form
    ]
    if not told and list(old) != list(new):
        told.append(f"the columns come in the order {', '.join(new)}, was {', '.join(old)}")
    return tuple(told)


def _row_groups(before: Sequence[RowGroup], after: Sequence[RowGroup]) -> tuple[int, ...]:
    # By content: where a row group lies in its file may change with those before it.
    shared = min(len(before), len(after))
    differing = [
        number
        for number in range(shared)
        if (before[number].rows, before[number].digests)
        != (after[number].rows, after[number].digests)
    ]
    return (*differing, *range(shared, max(len(before), len(after))))
