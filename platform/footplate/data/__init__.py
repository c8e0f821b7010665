"""Data sets: manifests, the order of samples, and the stream that feeds the ranks."""

from footplate.data.manifest import (
    DataFile,
    DataManifest,
    RowGroup,
    SchemaField,
    read_manifest,
)
from footplate.data.preparation import Preparation
from footplate.data.verify import verify_files

__all__ = [
    "DataFile",
    "DataManifest",
    "Preparation",
    "RowGroup",
    "SchemaField",
    "read_manifest",
    "verify_files",
]
