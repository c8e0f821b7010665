"""The user's code on a node where no rank has unpacked it."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from footplate.errors import StoreError
from footplate.runs.code_archive import make_archive
from footplate.spec import Job
from footplate.store import RunRecord, code_archive_path, open_store
from footplate.store.patience import Patience
from footplate.train.folder import fetch_code, working_folder

_QUICK = Patience(first_wait_s=0.01, longest_wait_s=0.02, give_up_s=0.3)


class _Sent(NamedTuple):
    """A run whose code is in the store: its record, the archive there, and its folder here."""

    record: RunRecord
    archive: Path
    folder: Path

    def fetch(self) -> None:
        """As a task does that is given the run."""
        fetch_code(self.record.model_dump_json(), self.folder, _QUICK)


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Sent:
    """Code that was uploaded elsewhere."""
    code = tmp_path / "code"
    for folder in (code, tmp_path / "node"):
        folder.mkdir()
    for number in range(50):
        (code / f"module_{number}.py").write_text(f"number = {number}\n")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    spec = {"name": "toy", "entrypoint": "module_0:train", "limits": {"epochs": 1}}
    spec["store"] = {"uri": str(tmp_path / "runs")}
    job = Job.from_dict(spec, folder=code, source="toy")
    archive = make_archive(job)
    assert archive is not None
    store, path = open_store(job), code_archive_path(archive.digest)
    store.create(path, archive.content)
    record = RunRecord(
        uid="uid", namespace="ns", name="toy", created=1.0, spec=spec, folder=".",
        code={"archive": archive.digest},
    )  # fmt: skip
    folder = working_folder(record, store, code)
    shutil.rmtree(folder)
    return _Sent(record, tmp_path / "runs" / path, folder)


def test_a_store_that_fails_is_asked_again(sent: _Sent) -> None:
    """One bad answer to one task does not end the attempt; without a good one it does."""
    content = sent.archive.read_bytes()
    sent.archive.unlink()
    sent.archive.symlink_to(sent.archive)
    with pytest.raises(StoreError, match=r"\(\d+ tries in "):
        sent.fetch()
    assert not sent.folder.exists()

    sent.archive.unlink()
    sent.archive.write_bytes(content)
    sent.fetch()

    assert (sent.folder / "module_7.py").read_text() == "number = 7\n"


def test_several_tasks_fetch_at_once(sent: _Sent) -> None:
    """Each finds all of it when it is told that it is there."""

    def found(_: int) -> int:
        sent.fetch()
        return len(list(sent.folder.glob("module_*.py")))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(found, range(8))) == [50] * 8


def test_code_that_does_not_travel_is_where_it_is(sent: _Sent) -> None:
    """A run on one machine has no archive: nothing is fetched, and nothing made."""
    record = sent.record.model_copy(update={"code": {}, "folder": str(sent.folder)})

    fetch_code(record.model_dump_json(), sent.folder, _QUICK)

    assert not sent.folder.exists()
