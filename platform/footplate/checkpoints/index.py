"""
Where the bytes of a checkpoint are: what each rank has written, piece by piece.

A piece is a box of a tensor: contiguous, row by row, in the byte order of the machine that all
checkpoints have (little-endian). A checkpoint's tensors are the union of its pieces, whoever wrote
them, so it is read by any number of ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic_core import from_json

from footplate.errors import CheckpointError

__all__ = [
    "FORMAT",
    "STATE_FILE",
    "Piece",
    "RankIndex",
    "data_file",
    "index_file",
    "own_prefix",
    "parse_index",
    "parse_shared",
    "shared_json",
]

FORMAT = 2
STATE_FILE = "state.json"

# Of a piece, of which there may be 100,000.
_VALUES = itemgetter("tensor", "dtype", "shape", "offsets", "sizes", "start", "bytes", "xxh3")
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


def index_file(rank: int) -> str:
    """Name of the file that says what a rank wrote."""
    return f"{own_prefix(rank)}.json"


def data_file(rank: int) -> str:
    """Name of the file with the bytes that a rank wrote."""
    return f"{own_prefix(rank)}.bin"


def own_prefix(rank: int) -> str:
    """What the names of the tensors begin with that belong to one rank alone."""
    return f"rank-{rank:05d}"


class Piece(NamedTuple):
    """
    A box of a tensor, and where its bytes are.

    Attributes:
        tensor: Its name.
        dtype: Name of its type, as torch has it.
        shape: Of the whole tensor.
        offsets: Where in the tensor the box begins, in each dimension.
        sizes: Of the box.
        start: Where its bytes begin in the file of the rank that wrote it.
        bytes: How many they are.
        xxh3: XXH3-64 of them, hexadecimal.
    """

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    start: int
    bytes: int
    xxh3: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RankIndex:
    """
    What one rank wrote.

    Attributes:
        rank: Which one.
        size: Bytes of its data file, which is not there if it is 0.
        own: What belongs to that rank alone, as JSON with the names of its tensors.
        pieces: In the order of the file.
    """

    rank: int
    size: int
    own: Any
    pieces: tuple[Piece, ...]

    def to_json(self) -> bytes:
        """The stored form, a line for each piece."""
        head = json.dumps(
            {"format": FORMAT, "rank": self.rank, "size": self.size, "own": self.own},
            separators=(",", ":"),
        )
        lines = ",\n".join(map(_piece_json, self.pieces))
        return f'{head[:-1]},"pieces":[\n{lines}\n]}}\n'.encode()


def parse_index(content: bytes) -> RankIndex:
    """
    An index in its stored form.

    Raises:
        CheckpointError: If it is malformed, or of another format.
    """
    try:
        values = _of_this_format(_loaded(content))
        pieces = tuple(map(_piece, map(_VALUES, values["pieces"])))
        return RankIndex(
            rank=int(values["rank"]), size=int(values["size"]), own=values["own"], pieces=pieces
        )
    except _MALFORMED as error:
        raise CheckpointError(f"the index of a rank is malformed: {error!r}") from error


def shared_json(trees: Mapping[str, Any]) -> bytes:
    """The stored form of what all ranks share: by name, JSON with the names of its tensors."""
    return json.dumps({"format": FORMAT, "shared": trees}, separators=(",", ":")).encode()


def parse_shared(content: bytes) -> dict[str, Any]:
    """
    What all ranks share, from its stored form.

    Raises:
        CheckpointError: If it is malformed, or of another format.
    """
    try:
        return dict(_of_this_format(json.loads(content))["shared"])
    except _MALFORMED as error:
        raise CheckpointError(f"{STATE_FILE} is malformed: {error!r}") from error


def _of_this_format(values: dict[str, Any]) -> dict[str, Any]:
    if values["format"] != FORMAT:
        raise CheckpointError(
            f"it is of format {values['format']}; this version reads format {FORMAT}"
        )
    return values


def _piece_json(piece: Piece) -> str:
    return (
        f'{{"tensor":{json.dumps(piece.tensor)},"dtype":"{piece.dtype}",'
        f'"shape":{_list(piece.shape)},"offsets":{_list(piece.offsets)},'
        f'"sizes":{_list(piece.sizes)},"start":{piece.start},"bytes":{piece.bytes},'
        f'"xxh3":"{piece.xxh3}"}}'
    )


def _list(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def _loaded(content: bytes) -> Any:
    """The same as the standard library, in half of its time."""
    try:
        return from_json(content)
    except ValueError:  # or one of the things that only the standard library takes
        return json.loads(content)


def _piece(values: tuple[Any, ...]) -> Piece:
    tensor, dtype, shape, offsets, sizes, start, size, digest = values
    place = (tuple(shape), tuple(offsets), tuple(sizes), start, size)
    return Piece._make((tensor, dtype, *place, digest))
