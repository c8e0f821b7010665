"""
Data manifests: the only way to name data.

A manifest is immutable JSON. Its version is a hash of what it says, so two manifests of one
version describe the same bytes. File paths in it are relative to its own folder: a data set can
be copied elsewhere as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from footplate.errors import DataError, ObjectNotFoundError
from footplate.store import Store

__all__ = ["DataFile", "DataManifest", "SchemaField", "read_manifest", "verify_files"]

_FORMAT = 1
# Above this much data the digests of all files take longer than starting a run should.
_DIGEST_LIMIT_BYTES = 1 << 30


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataFile(_Part):
    """
    One Parquet file.

    Attributes:
        path: Relative to the manifest.
        size: Bytes.
        row_groups: Rows of each row group, in order.
        sha256: Of the whole file, hexadecimal.
    """

    path: str
    size: int = Field(ge=0)
    row_groups: tuple[int, ...]
    sha256: str

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return sum(self.row_groups)


class SchemaField(_Part):
    """
    One column.

    Attributes:
        type: As Arrow prints it, e.g. ``fixed_size_binary[64]``.
        dtype: Of the numbers that a fixed-size binary holds, little-endian; None otherwise.
        shape: Of one sample in such a column.
    """

    name: str
    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    @property
    def width(self) -> int:
        """Bytes of one sample in memory, where the type says so; otherwise 0."""
        fixed = re.fullmatch(r"fixed_size_binary\[(\d+)\]", self.type)
        return int(fixed[1]) if fixed else 0


class DataManifest(_Part):
    """Files, rows, digests and schema of one immutable data set."""

    format: int = _FORMAT
    name: str
    files: tuple[DataFile, ...]
    fields: tuple[SchemaField, ...]

    @property
    def rows(self) -> int:
        """Samples of the data set."""
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def sample_size(self) -> int:
        """Bytes of a sample: as stored, or in memory where that is known and more."""
        in_memory = sum(field.width for field in self.fields)
        return max(self.size // self.rows, in_memory, 1)

    @property
    def version(self) -> str:
        """The first 16 hexadecimal digits of the sha256 of the canonical content."""
        return hashlib.sha256(self.to_json()).hexdigest()[:16]

    def to_json(self) -> bytes:
        """The canonical form: sorted keys, one file a line is left to the reader's tools."""
        values: dict[str, Any] = self.model_dump(mode="json")
        return (json.dumps(values, sort_keys=True, indent=1) + "\n").encode()


def read_manifest(
    uri: str, *, endpoint: str | None = None, region: str | None = None
) -> tuple[DataManifest, Store]:
    """
    Read a manifest.

    Args:
        uri: Absolute file name or URI, ending in ``.json``.

    Returns:
        The manifest, and the store of the folder that its files are relative to.

    Raises:
        DataError: If there is none, it is malformed, or it is not what its name says.
    """
    folder, _, file_name = uri.rpartition("/")
    name_parts = PurePosixPath(file_name)
    if name_parts.suffix != ".json":
        raise DataError(
            f"{uri} is no data manifest: its name does not end in .json",
            "Data is named by the manifest written beside its files, not by a folder or a file.",
        )
    try:
        store = Store(folder, endpoint=endpoint, region=region, create=False)
        content = store.get(file_name)
    except ObjectNotFoundError as error:
        raise DataError(
            f"there is no data manifest at {uri}",
            "Write one with footplate.data.build.write_manifest, or name a prepare function.",
        ) from error
    try:
        manifest = DataManifest.model_validate_json(content)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise DataError(f"{uri} is no data manifest: {where}: {problem['msg']}") from error
    _check_is_itself(uri, name_parts.stem, manifest)
    return manifest, store


def _check_is_itself(uri: str, stem: str, manifest: DataManifest) -> None:
    if manifest.format != _FORMAT:
        raise DataError(f"{uri} has format {manifest.format}; this version reads {_FORMAT}")
    if not stem.endswith(manifest.version):
        raise DataError(
            f"{uri} was changed after it was written: its content has version {manifest.version}",
            "Manifests are immutable. Restore it, or write a new one for the changed data.",
        )
    if manifest.rows == 0:
        raise DataError(f"{uri} describes no rows")


def verify_files(
    manifest: DataManifest, store: Store, *, on_file: Callable[[DataFile], None] | None = None
) -> None:
    """
    Compare the files with the manifest: existence, size, and digest of up to 1 GiB of data.

    Args:
        on_file: Called after each file, for a progress display.

    Raises:
        DataError: Naming every file that differs and how.
    """
    with_digest = manifest.size <= _DIGEST_LIMIT_BYTES

    def check(file: DataFile) -> str | None:
        difference = _difference(file, store, with_digest)
        if on_file is not None:
            on_file(file)
        return difference

    with ThreadPoolExecutor(max_workers=8) as pool:
        differences = [found for found in pool.map(check, manifest.files) if found]
    if differences:
        lines = "\n".join(f"  {difference}" for difference in differences)
        raise DataError(
            f"data set {manifest.name} does not match its manifest {manifest.version}:\n{lines}",
            "Restore the files, or write a new manifest for the changed data.",
        )


def _difference(file: DataFile, store: Store, with_digest: bool) -> str | None:
    where = store.locate(file.path)
    size = store.size(file.path)
    if size is None:
        return f"{where} is missing"
    if size != file.size:
        return f"{where} has {size} bytes, not {file.size}"
    if with_digest and hashlib.sha256(store.get(file.path)).hexdigest() != file.sha256:
        return f"{where} has the right size but another content (sha256 differs)"
    return None
