"""
Building data sets: sharded Parquet files and the manifest beside them.

:func:`build_dataset` makes a data set once and finds it from then on; :func:`write_manifest`
describes files that exist already. Numbers of a fixed shape (an image, a window of text) are kept
as a fixed-size binary column, whose field says in its metadata what the bytes are: readers hand
them to the model without decoding a single value.

The module needs pyarrow, so nothing of the client imports it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from footplate.data.manifest import DataFile, DataManifest, SchemaField, read_manifest
from footplate.errors import DataError, MissingExtraError, StoreError, StoreFullError
from footplate.store import Store

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError("train", ("numpy", "pyarrow")) from error

__all__ = ["build_dataset", "fixed_binary_column", "write_manifest"]

_DTYPE = b"footplate.dtype"
_SHAPE = b"footplate.shape"
# Booleans, integers, real and complex numbers: what numpy stores by value.
_NUMBER_KINDS = "biufc"
_NAME = r"[A-Za-z0-9][-\w.]*"


def fixed_binary_column(name: str, array: np.ndarray) -> tuple[pa.Field, pa.Array]:
    """
    A column that holds numbers of a fixed shape, without a copy where the array allows it.

    Args:
        name: Of the column.
        array: Shape ``(samples, *shape of one sample)``.

    Returns:
        The field, which carries dtype and shape, and the values.

    Raises:
        DataError: If the array holds something else than numbers, or nothing for a sample.
    """
    dtype, shape = array.dtype, array.shape[1:]
    if dtype.kind not in _NUMBER_KINDS:
        raise DataError(f"column {name!r} has dtype {dtype}; only numbers have a fixed size")
    if not array.ndim or not math.prod(shape):
        raise DataError(f"column {name!r} has shape {array.shape}; no sample holds a number")
    width = dtype.itemsize * math.prod(shape)
    content = np.ascontiguousarray(array, dtype=dtype.newbyteorder("<"))
    metadata = {_DTYPE: dtype.name, _SHAPE: json.dumps(shape)}
    field = pa.field(name, pa.binary(width), nullable=False, metadata=metadata)
    buffers = [None, pa.py_buffer(content)]
    return field, pa.FixedSizeBinaryArray.from_buffers(field.type, len(array), buffers)


def build_dataset(
    folder: Path,
    tables: Iterable[pa.Table],
    *,
    name: str,
    key: Mapping[str, JsonValue],
    rows_per_group: int = 4096,
    rows_per_file: int = 65536,
    on_rows: Callable[[int], None] | None = None,
) -> Path:
    """
    Build a data set, or find the one that was built from the same key before.

    A data set appears as a whole or not at all. Of several processes that want the same one, one
    builds it while the others wait; what a killed build leaves is removed by the next.

    Args:
        folder: Where data sets are kept; this one becomes ``<name>-<digest of key>`` in it.
        tables: The samples in their order, in tables of any size and of one schema. Not touched
            if the data set is there.
        name: Of the data set: letters, digits, and ``-_.``.
        key: All that the content depends on.
        rows_per_group: Samples of a row group, the least that is read at once.
        rows_per_file: Samples of a file.
        on_rows: Called with the samples written so far, for a progress display.

    Returns:
        The manifest's file.

    Raises:
        DataError: If there are no samples, or tables have nulls or differ in their schema.
        StoreError: If the files cannot be written.
    """
    if not re.fullmatch(_NAME, name):
        raise DataError(f"{name!r} cannot name a data set; use letters, digits, and -_.")
    if rows_per_group < 1 or rows_per_file < 1:
        raise DataError(f"no data set has {rows_per_group} rows a group, {rows_per_file} a file")
    identity = {"key": dict(key), "rows_per_group": rows_per_group, "rows_per_file": rows_per_file}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    target = folder.resolve() / f"{name}-{digest}"
    with _locked(target):
        if not target.exists():
            with _scratch_for(target) as scratch:
                _write_files(scratch, tables, rows_per_group, rows_per_file, on_rows)
                write_manifest(scratch, name=name)
                scratch.rename(target)
    return _manifest_in(target, name)


def write_manifest(folder: Path, *, name: str) -> Path:
    """
    Describe all Parquet files below a folder, but for hidden ones, in the order of their paths.

    Args:
        folder: Where the manifest is written, too.
        name: Of the data set.

    Returns:
        The manifest's file, ``<name>-<version>.json``.

    Raises:
        DataError: If there are no such files, or one cannot be read, has no rows, or has another
            schema than the first.
    """
    folder = folder.resolve()
    found = (path.relative_to(folder) for path in folder.rglob("*.parquet"))
    paths = sorted(path for path in found if not any(part.startswith(".") for part in path.parts))
    if not paths:
        raise DataError(f"there are no Parquet files below {folder}")
    with ThreadPoolExecutor() as pool:
        described = list(pool.map(lambda path: _described(folder, path), paths))
    files, schemas = zip(*described, strict=True)
    for path, fields in zip(paths, schemas, strict=True):
        if fields != schemas[0]:
            difference = _difference(schemas[0], fields)
            raise DataError(f"{folder / path} differs from {paths[0]} in {difference}")
    manifest = DataManifest(name=name, files=files, fields=schemas[0])
    file_name = f"{name}-{manifest.version}.json"
    Store(str(folder)).put(file_name, manifest.to_json())
    return folder / file_name


def _described(folder: Path, path: Path) -> tuple[DataFile, tuple[SchemaField, ...]]:
    file = folder / path
    try:
        with file.open("rb") as stream:
            metadata = pq.read_metadata(stream)
            stream.seek(0)
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.tell()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} is no readable Parquet file: {error}") from error
    if not metadata.num_rows:
        raise DataError(f"{file} has no rows", "Remove it, or write it again.")
    row_groups = tuple(
        metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)
    )
    described = DataFile(path=path.as_posix(), size=size, row_groups=row_groups, sha256=sha256)
    return described, _fields_of(metadata.schema.to_arrow_schema(), str(file))


def _fields_of(schema: pa.Schema, source: str) -> tuple[SchemaField, ...]:
    return tuple(_field_of(field, source) for field in schema)


def _field_of(field: pa.Field, source: str) -> SchemaField:
    metadata = field.metadata or {}
    if _DTYPE not in metadata and _SHAPE not in metadata:
        return SchemaField(name=field.name, type=str(field.type))
    try:
        dtype = metadata[_DTYPE].decode()
        shape = tuple(int(size) for size in json.loads(metadata[_SHAPE]))
        width = np.dtype(dtype).itemsize * math.prod(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{source}: column {field.name!r} does not say what its bytes are: {error!r}",
            "footplate.data.build.fixed_binary_column makes the field and the values.",
        ) from error
    if field.type != pa.binary(width):
        raise DataError(
            f"{source}: column {field.name!r} is {field.type}, "
            f"but {dtype} of shape {list(shape)} takes {width} bytes"
        )
    return SchemaField(name=field.name, type=str(field.type), dtype=dtype, shape=shape)


def _difference(expected: tuple[SchemaField, ...], found: tuple[SchemaField, ...]) -> str:
    names = [field.name for field in expected]
    found_names = [field.name for field in found]
    if names != found_names:
        return f"its columns: {', '.join(found_names)} instead of {', '.join(names)}"
    one, other = next(pair for pair in zip(expected, found, strict=True) if pair[0] != pair[1])
    return f"column {one.name!r}: {_form(other)} instead of {_form(one)}"


def _form(field: SchemaField) -> str:
    if field.shape is None:
        return field.type
    return f"{field.type} ({field.dtype} of shape {list(field.shape)})"


def _write_files(
    folder: Path,
    tables: Iterable[pa.Table],
    rows_per_group: int,
    rows_per_file: int,
    on_rows: Callable[[int], None] | None,
) -> None:
    written = 0
    with ExitStack() as open_file:
        for group in _groups(_checked(tables), rows_per_group, rows_per_file):
            with _writing_to(folder):
                if written % rows_per_file == 0:
                    open_file.close()
                    path = folder / f"part-{written // rows_per_file:05d}.parquet"
                    writer = open_file.enter_context(_writer(path, group.schema))
                writer.write_table(group, row_group_size=rows_per_group)
            written += len(group)
            if on_rows is not None:
                on_rows(written)
        with _writing_to(folder):
            open_file.close()
    if not written:
        raise DataError("there are no samples to build a data set of")


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    # Values of a fixed-size binary rarely repeat and have no useful order: a dictionary of them,
    # or the least and the greatest in every footer, would only cost.
    ordered = [field.name for field in schema if not pa.types.is_fixed_size_binary(field.type)]
    return pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=ordered, write_statistics=ordered
    )


def _checked(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The tables that have rows, after a look at what the manifest could not say of them."""
    expected: tuple[SchemaField, ...] | None = None
    for number, table in enumerate(tables):
        fields = _fields_of(table.schema, f"table {number}")
        expected = expected or fields
        if fields != expected:
            raise DataError(
                f"table {number} differs from the first: {_difference(expected, fields)}"
            )
        for field, column in zip(table.schema, table.columns, strict=True):
            if column.null_count:
                raise DataError(
                    f"table {number}: column {field.name!r} has {column.null_count} nulls",
                    "Every sample has every column; leave such samples out or fill them in.",
                )
        if len(table):
            yield table.replace_schema_metadata(None)


def _groups(
    tables: Iterable[pa.Table], rows_per_group: int, rows_per_file: int
) -> Iterator[pa.Table]:
    """Cut the tables anew: every group is full, but for the last one of a file."""
    pending: list[pa.Table] = []
    waiting = 0
    left_in_file = rows_per_file
    for table in tables:
        pending.append(table)
        waiting += len(table)
        while waiting >= (wanted := min(rows_per_group, left_in_file)):
            joined = pa.concat_tables(pending)
            yield joined.slice(0, wanted)
            pending = [joined.slice(wanted)]
            waiting -= wanted
            left_in_file = (left_in_file - wanted) or rows_per_file
    if waiting:
        yield pa.concat_tables(pending)


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Keep other processes from building the same data set; ends with the process at the latest."""
    with _writing_to(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = (target.parent / f".{target.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _scratch_for(target: Path) -> Iterator[Path]:
    """A folder on the same file system; the lock is held, so any other one is a leftover."""
    with _writing_to(target.parent):
        for leftover in target.parent.glob(f".{target.name}.*.tmp"):
            rmtree(leftover)
        holder = TemporaryDirectory(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    with holder as path:
        scratch = Path(path) / target.name
        scratch.mkdir()
        yield scratch


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFullError(
                f"cannot write to {folder}: no space left",
                "Free space there, then run the same command.",
            ) from error
        raise StoreError(f"cannot write to {folder}: {error}") from error


def _manifest_in(target: Path, name: str) -> Path:
    found = sorted(target.glob(f"{name}-*.json"))
    if len(found) != 1:
        raise DataError(
            f"{target} holds {len(found)} data manifests, not one",
            "It was changed after it was built. Delete the folder: it is then built again.",
        )
    read_manifest(str(found[0]))
    return found[0]
