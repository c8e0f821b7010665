"""The committed digits are scikit-learn's, split by who wrote them."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from footplate.data import DataManifest, SchemaField, read_manifest, verify_files

_FOLDER = Path(__file__).parents[2] / "datasets" / "digits"
_ROWS = {"train": 1415, "valid": 382}


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    """The module that made the committed files."""
    spec = importlib.util.spec_from_file_location("prepare_digits", _FOLDER / "prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _committed(part: str) -> tuple[DataManifest, pa.Table]:
    (path,) = (_FOLDER / part).glob("*.json")
    manifest, store = read_manifest(str(path))
    verify_files(manifest, store)
    files = [pq.read_table(io.BytesIO(store.get(file.path))) for file in manifest.files]
    return manifest, pa.concat_tables(files)


@pytest.mark.parametrize("part", ["train", "valid"])
def test_committed_rows_are_reproduced(prepare: ModuleType, part: str) -> None:
    """The committed files match their manifest and hold exactly what ``prepare.py`` makes."""
    manifest, table = _committed(part)

    assert table.equals(prepare.table(part))
    assert manifest.rows == _ROWS[part]
    assert manifest.fields == (
        SchemaField(name="image", type="fixed_size_binary[64]", dtype="uint8", shape=(8, 8)),
        SchemaField(name="label", type="int64"),
    )


@pytest.mark.parametrize("part", ["train", "valid"])
def test_prepare_writes_such_a_data_set(prepare: ModuleType, part: str, tmp_path: Path) -> None:
    """A run of ``prepare.py`` gives a complete data set, and never writes over another one."""
    manifest, store = read_manifest(str(prepare.prepare(tmp_path, part)))

    verify_files(manifest, store)
    assert [path.name for path in tmp_path.iterdir()] == [part]
    assert manifest.fields == _committed(part)[0].fields
    assert manifest.rows == _ROWS[part]
    with pytest.raises(FileExistsError):
        prepare.prepare(tmp_path, part)


def test_both_parts_are_all_the_digits() -> None:
    """Together the parts are scikit-learn's images and labels, each once and in its order."""
    from sklearn.datasets import load_digits

    tables = [_committed(part)[1] for part in ("train", "valid")]
    table = pa.concat_tables(tables)
    images = np.frombuffer(b"".join(table.column("image").to_pylist()), np.uint8)

    digits = load_digits()
    np.testing.assert_array_equal(images.reshape(-1, 8, 8), digits.images)
    np.testing.assert_array_equal(table.column("label").to_numpy(), digits.target)


def test_nobody_is_in_both_parts() -> None:
    """
    The split does not leak: it falls between two people, and no image is in both parts.

    Everybody filled in the same form, which begins with the ten digits in order, twice.
    """
    train, valid = (_committed(part)[1] for part in ("train", "valid"))

    beginning = 2 * list(range(10))
    assert valid.column("label")[:20].to_pylist() == beginning
    assert train.column("label")[:20].to_pylist() == beginning
    assert not set(train.column("image").to_pylist()) & set(valid.column("image").to_pylist())
