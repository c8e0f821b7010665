"""What a spec says of the columns of a data set, compared with what its manifest says."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from footplate.data.counting import epoch_samples
from footplate.data.manifest import DataManifest, SchemaField
from footplate.errors import DataError, Problem
from footplate.spec import Bucket, Dataset, Pack

__all__ = ["column_problems"]

_LIST_OF_NUMBERS = re.compile(
    r"(?:large_)?list<.*?: (u?int\d+|halffloat|float|double)( not null)?>"
)


def column_problems(where: str, dataset: Dataset, manifest: DataManifest) -> Iterator[Problem]:
    """
    Everything wrong about the columns.

    Args:
        where: The key of the data set in the spec.
        manifest: Of one of its parts.
    """
    known = {field.name: field for field in manifest.fields}
    for column in dataset.columns or ():
        if column not in known:
            yield Problem(f"{where}.columns", _unknown(column, manifest))
    if dataset.pack is not None:
        found = list(_list_problems(f"{where}.pack", dataset, dataset.pack, manifest))
        yield from found or _packing_problems(f"{where}.pack", dataset.pack, manifest)
    if dataset.bucket is not None:
        yield from _list_problems(f"{where}.bucket", dataset, dataset.bucket, manifest)
        yield from _padding_problems(f"{where}.bucket", dataset, dataset.bucket, manifest)


def _list_problems(
    where: str, dataset: Dataset, section: Pack | Bucket, manifest: DataManifest
) -> Iterator[Problem]:
    """The column that samples are made of, or ordered by."""
    column = section.column
    field = next((field for field in manifest.fields if field.name == column), None)
    if field is None:
        yield Problem(f"{where}.column", _unknown(column, manifest))
    elif _numbers_of(field) is None:
        what = f"{column!r} of {manifest.name} is {field.type}, not a list of numbers"
        yield Problem(f"{where}.column", what)
    elif dataset.columns is not None and column not in dataset.columns:
        yield Problem(f"{where}.column", f"{column!r} is not among the columns that are read")


def _packing_problems(where: str, pack: Pack, manifest: DataManifest) -> Iterator[Problem]:
    try:
        epoch_samples([manifest], pack)
    except DataError as error:
        yield Problem(f"{where}.length", "; ".join(str(error).splitlines()))


def _padding_problems(
    where: str, dataset: Dataset, bucket: Bucket, manifest: DataManifest
) -> Iterator[Problem]:
    """All lists are filled up with the same number."""
    for field in manifest.fields:
        is_read = dataset.columns is None or field.name in dataset.columns
        numbers = _numbers_of(field) if is_read else None
        if numbers is not None and not _holds(numbers, bucket.pad):
            what = f"{bucket.pad} is no {numbers}, which column {field.name!r} consists of"
            yield Problem(f"{where}.pad", what)


def _numbers_of(field: SchemaField) -> str | None:
    """What a list consists of, by Arrow's name; None if it is no list of numbers."""
    found = _LIST_OF_NUMBERS.fullmatch(field.type)
    return found[1] if found else None


def _holds(numbers: str, value: int) -> bool:
    if "int" not in numbers:
        return True
    bits = int(numbers.partition("int")[2])
    least = 0 if numbers.startswith("u") else -(1 << (bits - 1))
    return least <= value < least + (1 << bits)


def _unknown(column: str, manifest: DataManifest) -> str:
    known = [field.name for field in manifest.fields]
    close = difflib.get_close_matches(column, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(known)}"
    return f"{manifest.name} has no column {column!r}; {hint}"
