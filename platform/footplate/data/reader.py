"""Samples by number, gathered from the row groups of a manifest's Parquet files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from footplate.data.manifest import DataManifest, read_manifest
from footplate.data.order import Ids
from footplate.errors import DataError, ObjectNotFoundError, StoreError
from footplate.store import Store

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

__all__ = ["SampleReader", "open_reader"]

# Decoded row groups kept in memory. One pool of the sample order is at most 8 groups, and the
# neighbouring one may be needed for the same batch.
_CACHED_GROUPS = 16


@lru_cache(maxsize=8)
def open_reader(
    manifest_uri: str, columns: tuple[str, ...] | None, endpoint: str | None, region: str | None
) -> SampleReader:
    """The reader of a data set, opened once a process."""
    manifest, store = read_manifest(manifest_uri, endpoint=endpoint, region=region)
    return SampleReader(manifest, store, columns)


class SampleReader:
    """
    Random access to the samples of a manifest.

    Args:
        store: The folder that the manifest's files are relative to.
        columns: What to read, or None for all.

    Raises:
        DataError: If the data set has no such column.
    """

    def __init__(
        self, manifest: DataManifest, store: Store, columns: Sequence[str] | None = None
    ) -> None:
        known = [field.name for field in manifest.fields]
        if unknown := [name for name in columns or () if name not in known]:
            raise DataError(
                f"data set {manifest.name} has no column {', '.join(unknown)}",
                f"Its columns are {', '.join(known)}.",
            )
        self._manifest = manifest
        self._store = store
        self._columns = list(columns) if columns is not None else known
        self._locations = [
            (file, group)
            for file, entry in enumerate(manifest.files)
            for group in range(len(entry.row_groups))
        ]
        sizes = [rows for entry in manifest.files for rows in entry.row_groups]
        self._starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        self._files: dict[int, pyarrow.parquet.ParquetFile] = {}
        self._groups: OrderedDict[int, pyarrow.Table] = OrderedDict()

    def take(self, ids: Ids) -> pyarrow.Table:
        """
        The samples with these numbers, in this order.

        Raises:
            DataError: If a file can't be read or is not what the manifest says.
        """
        import pyarrow

        groups = np.searchsorted(self._starts, ids, side="right") - 1
        needed, which = np.unique(groups, return_inverse=True)
        tables = [self._group(int(group)) for group in needed]
        bases = np.concatenate(([0], np.cumsum([table.num_rows for table in tables])))[:-1]
        rows = ids - self._starts[groups] + bases[which]
        return pyarrow.concat_tables(tables).combine_chunks().take(pyarrow.array(rows))

    def _group(self, group: int) -> pyarrow.Table:
        table = self._groups.pop(group, None)
        if table is None:
            table = self._read(*self._locations[group])
        self._groups[group] = table
        while len(self._groups) > _CACHED_GROUPS:
            self._groups.popitem(last=False)
        return table

    def _read(self, file: int, group: int) -> pyarrow.Table:
        import pyarrow

        where = self._store.locate(self._manifest.files[file].path)
        expected = self._manifest.files[file].row_groups[group]
        try:
            table = self._open(file).read_row_group(group, columns=self._columns)
        except ObjectNotFoundError as error:
            raise DataError(f"row group {group} of {where} cannot be read: no such file") from error
        except StoreError as error:
            raise type(error)(
                f"row group {group} of {where}: {error.message}", error.hint
            ) from error
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"row group {group} of {where} cannot be read: {error}") from error
        if table.num_rows != expected:
            raise DataError(
                f"row group {group} of {where} has {table.num_rows} rows, not {expected}"
            )
        return table

    def _open(self, file: int) -> pyarrow.parquet.ParquetFile:
        import pyarrow
        import pyarrow.parquet

        if file not in self._files:
            entry = self._manifest.files[file]
            source = pyarrow.PythonFile(self._store.reader(entry.path), mode="r")
            opened = pyarrow.parquet.ParquetFile(source)
            self._check_schema(entry.path, opened.schema_arrow)
            self._files[file] = opened
        return self._files[file]

    def _check_schema(self, path: str, schema: pyarrow.Schema) -> None:
        found = {field.name: str(field.type) for field in schema}
        declared = {field.name: field.type for field in self._manifest.fields}
        if found != declared:
            raise DataError(
                f"the schema of {self._store.locate(path)} differs from its manifest: "
                f"{found}, not {declared}"
            )
