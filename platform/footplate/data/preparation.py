"""What a prepare function returns: a data set that is still to be made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import JsonValue

from footplate.data.manifest import check_name
from footplate.errors import DataError

__all__ = ["Preparation"]

Compression = Literal["none", "zstd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """
    How a data set is made: a list of items, and a function that turns each into samples.

    Footplate calls the function in Ray Data's tasks, many at once and on any node, and writes
    what it returns: in the order of the source, whoever was faster, and into files of a chosen
    size, however many samples an item gives. What is made is the same on any machine, and a
    build that was stopped goes on where it was.

    A data set is built once and found from then on. It is built anew when anything changes that
    is known to shape it: the text of the prepare function's file, its options, the items, and
    the sizes below.

    Attributes:
        name: Of the data set: letters, digits, and ``-_.``.
        source: The items, in the order of their samples: texts, numbers, and lists and
            dictionaries of them, such as the name of a file.
        transform: Makes the samples of an item: columns by name, of one length. An array of
            shape (N, ...) is stored as it is, N samples of a fixed shape; a list may hold
            texts, bytes, or arrays of different lengths. A :class:`pyarrow.Table` is taken,
            too. For an item with more samples than memory holds, it yields such columns part by
            part. Its module, and those beside it, travel to where it runs.
        key: What else the content depends on, in place of the file's text: with it, an edit
            keeps what was built unless the key changes, too.
        items_per_shard: What a task makes at once, and what a stopped build does again. Changes
            nothing about the result; left out, it depends on how many items there are.
        rows_per_group: Samples of a row group, the least that is read at once.
        rows_per_file: Samples of a file.
        compression: ``none`` takes more space. Samples of a fixed size then need no decoding, and
            ranks that read for themselves from a disk of their node, without ``map``, read them
            where they lie: about twice as many a second.
    """

    name: str
    source: Iterable[Any]
    transform: Callable[[Any], Any]
    key: JsonValue = None
    items_per_shard: int | None = None
    rows_per_group: int = 4096
    rows_per_file: int = 65536
    compression: Compression = "zstd"

    def __post_init__(self) -> None:
        check_name(self.name)
        for what in ("items_per_shard", "rows_per_group", "rows_per_file"):
            value = getattr(self, what)
            if value is not None and value < 1:
                raise DataError(f"{what} of data set {self.name} is {value}; the least is 1")
        if self.compression not in get_args(Compression):
            raise DataError(
                f"compression of data set {self.name} is {self.compression!r}; "
                f"it can be {' or '.join(get_args(Compression))}"
            )
