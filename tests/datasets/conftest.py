"""Prepare functions of the repository, and what they make."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from footplate.data import DataManifest, Preparation, read_manifest, verify_files
from footplate.data.tables import table_of

_FOLDER = Path(__file__).parents[2] / "datasets"


@pytest.fixture(scope="session")
def module_of() -> Callable[[str], ModuleType]:
    """Imports the ``prepare.py`` of a data set."""

    def module_of(data_set: str) -> ModuleType:
        file = _FOLDER / data_set / "prepare.py"
        spec = importlib.util.spec_from_file_location(f"prepare_{data_set}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return module_of


@pytest.fixture(scope="session")
def samples_of() -> Callable[[Preparation], pa.Table]:
    """Transforms all items, one after the other, and writes nothing."""

    def samples_of(preparation: Preparation) -> pa.Table:
        tables = (table_of(preparation.transform(item)) for item in preparation.source)
        return pa.concat_tables(table for table in tables if len(table))

    return samples_of


@pytest.fixture(scope="session")
def read_data() -> Callable[[str], tuple[DataManifest, pa.Table]]:
    """Reads a data set, after a look at whether its files are what the manifest says."""

    def read_data(uri: str) -> tuple[DataManifest, pa.Table]:
        manifest, store = read_manifest(uri)
        verify_files(manifest, store, depth="full")
        files = [pq.read_table(io.BytesIO(store.get(file.path))) for file in manifest.files]
        return manifest, pa.concat_tables(files)

    return read_data
