"""
The public surface as a type checker sees it.

Checked by ``make types`` and never run: that it passes means that users' own checkers get precise
types, with no ``Any`` in the place of a result.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from footplate.data import DataManifest, read_manifest
from footplate.errors import FootplateError, Problem, SpecError
from footplate.spec import Cadence, Job, Limits, Workers, load
from footplate.store import Store


def specs() -> None:
    """A job is read, changed and looked into with the types that its file has."""
    job = load("digits.toml", ["workers.count=8"])
    assert_type(job, Job)
    assert_type(job.replace(workers=8), Job)
    assert_type(job.workers, Workers)
    assert_type(job.workers.world_size, int)
    assert_type(job.limits, Limits | None)
    assert_type(job.checkpoint.every, Cadence)
    assert_type(job.folder, Path)


def data() -> None:
    """A manifest comes with the store of its files."""
    manifest, store = read_manifest("s3://bucket/digits/train.json", region="eu-central-1")
    assert_type(manifest, DataManifest)
    assert_type(store, Store)
    assert_type(store.size("part-00000.parquet"), int | None)


def errors(error: FootplateError) -> None:
    """An error carries what a script branches on."""
    assert_type(error.exit_code, int)
    assert_type(error.category, str)
    if isinstance(error, SpecError):
        assert_type(error.problems, tuple[Problem, ...])
