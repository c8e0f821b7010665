"""Data sets: manifests, the order of samples, and the stream that feeds the ranks."""

from footplate.data.manifest import (
    DataFile,
    DataManifest,
    SchemaField,
    read_manifest,
    verify_files,
)

__all__ = ["DataFile", "DataManifest", "SchemaField", "read_manifest", "verify_files"]
