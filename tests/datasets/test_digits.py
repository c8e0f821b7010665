"""The committed digits are scikit-learn's, split by who wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from footplate.data import DataManifest, Preparation, SchemaField
from footplate.data.prepare import prepare
from footplate.store import Store

_FOLDER = Path(__file__).parents[2] / "datasets" / "digits"
_ROWS = {"train": 1415, "valid": 382}

Read = Callable[[str], tuple[DataManifest, pa.Table]]


def _committed(part: str, read_data: Read) -> tuple[DataManifest, pa.Table]:
    (path,) = (_FOLDER / part).glob("*.json")
    return read_data(str(path))


@pytest.mark.parametrize("part", ["train", "valid"])
def test_committed_rows_are_reproduced(
    module_of: Callable[[str], ModuleType],
    samples_of: Callable[[Preparation], pa.Table],
    read_data: Read,
    part: str,
) -> None:
    """The committed files match their manifest and hold exactly what ``prepare.py`` makes."""
    manifest, table = _committed(part, read_data)

    assert table.equals(samples_of(getattr(module_of("digits"), part)()))
    assert manifest.rows == _ROWS[part]
    assert manifest.fields == (
        SchemaField(
            name="image", type="fixed_size_binary[64]", dtype="uint8", shape=(8, 8), nulls=0
        ),
        SchemaField(name="label", type="int64", nulls=0, minimum=0, maximum=9),
    )


@pytest.mark.parametrize("part", ["train", "valid"])
def test_a_build_makes_such_a_data_set(read_data: Read, part: str, tmp_path: Path) -> None:
    """What anybody builds is the committed data set, laid out in the same row groups."""
    built, table = read_data(prepare(f"{_FOLDER / 'prepare.py'}:{part}", {}, Store(str(tmp_path))))
    committed, samples = _committed(part, read_data)

    assert table.equals(samples)
    assert (built.name, built.fields) == (committed.name, committed.fields)
    assert built.group_rows == committed.group_rows


def test_both_parts_are_all_the_digits(read_data: Read) -> None:
    """Together the parts are scikit-learn's images and labels, each once and in its order."""
    from sklearn.datasets import load_digits

    table = pa.concat_tables([_committed(part, read_data)[1] for part in ("train", "valid")])
    images = np.frombuffer(b"".join(table.column("image").to_pylist()), np.uint8)

    digits = load_digits()
    np.testing.assert_array_equal(images.reshape(-1, 8, 8), digits.images)
    np.testing.assert_array_equal(table.column("label").to_numpy(), digits.target)


def test_nobody_is_in_both_parts(read_data: Read) -> None:
    """
    The split does not leak: it falls between two people, and no image is in both parts.

    Everybody filled in the same form, which begins with the ten digits in order, twice.
    """
    train, valid = (_committed(part, read_data)[1] for part in ("train", "valid"))

    beginning = 2 * list(range(10))
    assert valid.column("label")[:20].to_pylist() == beginning
    assert train.column("label")[:20].to_pylist() == beginning
    assert not set(train.column("image").to_pylist()) & set(valid.column("image").to_pylist())
