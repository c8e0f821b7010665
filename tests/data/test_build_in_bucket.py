"""Builds into a bucket of a real S3 server: the same bytes as in a folder, and restartable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from footplate.data import read_manifest, verify_files
from footplate.data.prepare import prepare
from footplate.store import Store
from s3_server import S3Server

pytestmark = pytest.mark.cluster

_DEADLINE_S = 120

_PREPARE = """
import functools
from pathlib import Path
import numpy as np
from footplate.data import Preparation

def make(*, folder, items=1):
    return Preparation(
        name="numbers",
        source=range(items),
        transform=functools.partial(samples, folder=Path(folder)),
        rows_per_group=64,
        rows_per_file=300,
    )

def samples(item, *, folder):
    with (folder / f"calls-{item}").open("a") as calls:
        calls.write("x")
    if item == 1 and (folder / "outage").exists():
        raise OSError("the source does not answer")
    noise = np.random.default_rng(item).integers(256, size=(1000, 10_000), dtype=np.uint8)
    return {"noise": noise, "number": np.arange(1000)}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A prepare function of 10 MB an item."""
    file = tmp_path / "prepare.py"
    file.write_text(_PREPARE)
    return file


def test_a_bucket_gets_what_a_folder_gets(
    file: Path, s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    """Files of several megabytes arrive whole, nothing else is left, and it is found again."""
    options = {"folder": str(tmp_path)}
    store = Store(f"{bucket}/sets", endpoint=s3.endpoint)
    uri = prepare(f"{file}:make", options, store)
    manifest, files = read_manifest(uri, endpoint=s3.endpoint)

    verify_files(manifest, files, depth="full")
    local, _ = read_manifest(prepare(f"{file}:make", options, Store(str(tmp_path / "data"))))
    assert manifest == local
    names = [info.path.rpartition("/")[2] for info in store.objects("")]
    assert names == sorted([manifest.file_name, *(each.path for each in manifest.files)])
    assert prepare(f"{file}:make", options, store) == uri
    assert (tmp_path / "calls-0").read_text() == "xx"


@pytest.mark.local
def test_a_build_goes_on_where_it_was(
    file: Path, s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    """What tasks have put into the bucket before a failure is not made again."""
    command = [sys.executable, "-c", "from footplate.cli import main; main()"]
    command += ["dataset", "build", f"{file}:make", "--option", f"folder={tmp_path}"]
    command += ["--option", "items=2", "--to", f"{bucket}/sets", "--endpoint", s3.endpoint]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def build() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, env=environment
        )

    (tmp_path / "outage").touch()
    failed = build()
    assert failed.returncode == 10, failed.stderr
    assert "item 1 of the source, 1, cannot be transformed: OSError: the source" in failed.stderr
    store = Store(bucket, endpoint=s3.endpoint)
    kept = [info.path for info in store.objects("") if info.path.endswith(".arrow.json")]
    (tmp_path / "outage").unlink()
    done = build()

    assert done.returncode == 0, done.stderr
    manifest, files = read_manifest(done.stdout.strip(), endpoint=s3.endpoint)
    verify_files(manifest, files, depth="full")
    assert [each.rows for each in manifest.files] == [300] * 6 + [200]
    assert (tmp_path / "calls-0").read_text() == ("x" if kept else "xx")
