"""What Ray Data's tasks returned, put together and cut again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from footplate.data.plan import Range
from footplate.data.ray_rows import _PLACE, _cut, _whole
from footplate.errors import DataError


def _arriving(*rows: range) -> Iterator[pa.Table]:
    """Blocks of so many samples, each of which is its place."""
    for each in rows:
        places = np.array(each, np.int64)
        yield pa.table({"x": places * 10, _PLACE: places})


def _nothing() -> pa.Table:
    return pa.table({_PLACE: pa.array([], pa.int64())})


def test_blocks_are_put_together() -> None:
    """Also where some of them are empty; nothing is taken of what comes after."""
    blocks = _arriving(range(0), range(2), range(2, 2), range(2, 5), range(5, 7))

    table = _whole(_nothing(), blocks, 5)

    assert table.column("x").to_pylist() == [0, 10, 20, 30, 40]
    assert table.column("x").num_chunks == 1
    assert next(blocks).num_rows == 2


@pytest.mark.parametrize("blocks", [[range(6)], [range(3), range(3, 6)], [range(4)], []])
def test_neither_more_nor_less_may_come(blocks: list[range]) -> None:
    """Samples that are too many would vanish otherwise, and those of the next task be off."""
    with pytest.raises(DataError, match=r"a task returned \d samples, not 5"):
        _whole(_nothing(), _arriving(*blocks), 5)


def test_a_task_may_have_nothing_to_do() -> None:
    """Its step has no samples, and the one after it its own."""
    first = _whole(_nothing(), _arriving(range(3)), 3)
    assert _whole(first.slice(0, 0), _arriving(range(3, 6)), 0).num_rows == 0

    work = [
        (["first"], [Range(0, 0, 2)]),
        (["empty"], [Range(0, 2, 2)]),
        (["last", "end"], [Range(0, 2, 4), Range(0, 4, 4)]),
    ]
    batches = list(_cut(work, _arriving(range(2), range(0), range(2, 4))))

    assert [step for step, _ in batches] == ["first", "empty", "last", "end"]
    assert [list(batch["x"]) for _, batch in batches] == [[0, 10], [], [20, 30], []]
