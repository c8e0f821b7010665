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
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from footplate.errors import DataError, ObjectNotFoundError
from footplate.store import Store

__all__ = [
    "DataFile",
    "DataManifest",
    "RowGroup",
    "SchemaField",
    "check_name",
    "parse_manifest",
    "read_manifest",
]

_FORMAT = 2
_NAME = r"[A-Za-z0-9][-\w.]*"
# As NumPy has them in memory, by Arrow's names.
_NUMBER_BYTES = {
    "bool": 1,
    **{f"{sign}int{8 * size}": size for sign in ("", "u") for size in (1, 2, 4, 8)},
    "halffloat": 2,
    "float": 4,
    "double": 8,
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RowGroup(_Part):
    """
    One row group: what a reader fetches at once, and can check by itself.

    The tuples have an entry for each field of the manifest, in the same order. What a file holds
    of a field in a row group is one range of bytes; a nested field's columns lie side by side.

    Attributes:
        rows: May be 0.
        offsets: First byte of the field in the file.
        sizes: Bytes.
        digests: XXH3 (64 bits) of these bytes, 16 hexadecimal digits.
        values: Numbers in all lists of the row group, where the field is a list of numbers or
            texts; None otherwise.
    """

    rows: int = Field(ge=0)
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    digests: tuple[str, ...]
    values: tuple[int | None, ...]


class DataFile(_Part):
    """
    One Parquet file.

    Attributes:
        path: Relative to the manifest.
        size: Bytes.
        sha256: Of the whole file, hexadecimal.
        row_groups: In the order of the file.
    """

    path: str
    size: int = Field(ge=0)
    sha256: str
    row_groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return sum(group.rows for group in self.row_groups)


class SchemaField(_Part):
    """
    One column, and what the files say of its values.

    Attributes:
        type: As Arrow prints it, e.g. ``fixed_size_binary[64]``.
        dtype: Of the numbers that a fixed-size binary holds, little-endian; None otherwise.
        shape: Of one sample in such a column.
        nulls: Missing values over the data set, or None if a file does not say.
        minimum: Least value of numbers and short texts, likewise.
        maximum: Greatest value, likewise.
    """

    name: str
    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    nulls: int | None = None
    minimum: int | float | str | None = None
    maximum: int | float | str | None = None

    @property
    def form(self) -> str:
        """Type, dtype and shape in words: all that readers depend on."""
        if self.shape is None:
            return self.type
        return f"{self.type} ({self.dtype} of shape {list(self.shape)})"

    @property
    def width(self) -> int:
        """Bytes of one sample in memory, where the type says so; otherwise 0."""
        return _width(self.type)


class DataManifest(_Part):
    """Files, rows, digests and schema of one immutable data set."""

    format: int = _FORMAT
    name: str
    fields: tuple[SchemaField, ...]
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """Samples of the data set."""
        return sum(self.group_rows)

    @property
    def group_rows(self) -> tuple[int, ...]:
        """Rows of each row group, over all files."""
        return tuple(group.rows for file in self.files for group in file.row_groups)

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

    @property
    def file_name(self) -> str:
        """What the manifest is called in the folder of its files."""
        return f"{self.name}-{self.version}.json"

    def to_json(self) -> bytes:
        """The canonical form: sorted keys, a field and a file a line."""
        values: dict[str, Any] = self.model_dump(mode="json")
        parts = (
            f'"fields": {_lines(values["fields"])}',
            f'"files": {_lines(values["files"])}',
            f'"format": {self.format}',
            f'"name": {json.dumps(self.name)}',
        )
        return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _width(kind: str) -> int:
    if binary := re.fullmatch(r"fixed_size_binary\[(\d+)\]", kind):
        return int(binary[1])
    # The name of the values says nothing, and that none is missing likewise.
    if listed := re.fullmatch(r"fixed_size_list<.*?: (.+?)(?: not null)?>\[(\d+)\]", kind):
        return _width(listed[1]) * int(listed[2])
    return _NUMBER_BYTES.get(kind, 0)


def check_name(name: str) -> None:
    """
    Refuse what can't name a data set: it becomes part of a file name.

    Raises:
        DataError: If the name has anything but letters, digits, and ``-_.``.
    """
    if not re.fullmatch(_NAME, name):
        raise DataError(f"{name!r} cannot name a data set; use letters, digits, and -_.")


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
            f"Write one with: footplate dataset create {shlex.quote(folder)}; "
            "or name a prepare function.",
        ) from error
    manifest = parse_manifest(content, uri)
    if not name_parts.stem.endswith(manifest.version):
        raise DataError(
            f"{uri} was changed after it was written: its content has version {manifest.version}",
            "Manifests are immutable. Restore it, or write a new one for the changed data.",
        )
    return manifest, store


def parse_manifest(content: bytes, source: str) -> DataManifest:
    """
    A manifest out of its JSON.

    Args:
        source: Where it was read, for the message.

    Raises:
        DataError: If it is malformed, of another format, or describes nothing.
    """
    _check_format(content, source)
    try:
        manifest = DataManifest.model_validate_json(content)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise DataError(f"{source} is no data manifest: {where}: {problem['msg']}") from error
    if manifest.rows == 0:
        raise DataError(f"{source} describes no rows")
    return manifest


def _check_format(content: bytes, source: str) -> None:
    # First of all: a manifest of another format may have any other keys.
    try:
        values = json.loads(content)
    except ValueError as error:
        raise DataError(f"{source} is no data manifest: {error}") from error
    found = values.get("format", _FORMAT) if isinstance(values, dict) else _FORMAT
    if found != _FORMAT:
        folder = shlex.quote(source.rpartition("/")[0])
        raise DataError(
            f"{source} has format {found}; this version reads {_FORMAT}",
            f"Write it anew with: footplate dataset create {folder}",
        )


def _lines(values: Sequence[Any]) -> str:
    lines = ",\n ".join(json.dumps(value, sort_keys=True) for value in values)
    return f"[\n {lines}\n]" if lines else "[]"
