"""Which data a run reads is settled once, by whatever means it is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from footplate.data import Preparation
from footplate.data.build import build
from footplate.errors import DataError, SpecError, UserCodeError
from footplate.spec import Job
from footplate.store import RunData, RunPaths, Store, read_record
from footplate.train.datasets import settle_data

_RUN = RunPaths(namespace="local", name="toy", uid="uid")

_PREPARE = """
from __future__ import annotations
from pathlib import Path
from footplate.data import Preparation

def prepare(rows: int = 12) -> Preparation:
    with Path(__file__).with_name("calls").open("a") as calls:
        calls.write("x")
    return Preparation(name="numbers", source=[rows], transform=numbers)

def numbers(rows):
    return {"number": list(range(rows))}
"""


@pytest.fixture(autouse=True)
def _modules_forgotten() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("footplate_prepare_"):
            del sys.modules[name]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store in a folder."""
    return Store(str(tmp_path / "state" / "runs"))


def _damage(file: Path) -> None:
    """Change a byte of the one row group that a manifest names."""
    part = file.with_name("part-00000.parquet")
    content = bytearray(part.read_bytes())
    content[10] ^= 0xFF
    part.write_bytes(content)


def _job(folder: Path, *, last: str = "drop", batch_size: int = 4, **dataset: Any) -> Job:
    return Job.from_dict(
        {
            "name": "toy",
            "entrypoint": "toy:train",
            "limits": {"epochs": 1},
            "data": {"train": {"batch_size": batch_size, "last": last, **dataset}},
        },
        folder=folder,
        source="toy",
    )


def _built(folder: Path, rows: int = 12) -> Path:
    numbers = Preparation(
        name="numbers", source=[rows], transform=lambda rows: {"number": np.arange(rows)}
    )
    return Path(build(numbers, Store(str(folder)), key=None, folder=folder))


def test_a_manifest_is_settled(tmp_path: Path, store: Store) -> None:
    """A manifest beside the spec is found, and what was read is written down."""
    file = _built(tmp_path / "data")
    job = _job(tmp_path, manifest=str(file.relative_to(tmp_path)))

    sets = settle_data(job, store, _RUN)

    assert (sets["train"].manifest, sets["train"].rows) == (str(file), 12)
    assert read_record(store, _RUN.data, RunData).sets == sets


def test_a_prepared_data_set_is_settled(tmp_path: Path, store: Store) -> None:
    """A function makes the data beside the store, with its options; later attempts don't ask it."""
    (tmp_path / "prepare.py").write_text(_PREPARE)
    job = _job(tmp_path, prepare="prepare.py:prepare", options={"rows": 20})

    first = settle_data(job, store, _RUN)
    second = settle_data(job, store, _RUN)

    assert first == second
    assert first["train"].rows == 20
    assert Path(first["train"].manifest).is_relative_to(tmp_path / "state" / "datasets")
    assert (tmp_path / "calls").read_text() == "x"


def test_a_second_attempt_reads_what_the_first_read(tmp_path: Path, store: Store) -> None:
    """What is written down binds every later attempt, though the spec now names other data."""
    first = settle_data(_job(tmp_path, manifest=str(_built(tmp_path / "a"))), store, _RUN)

    other = _job(tmp_path, manifest=str(_built(tmp_path / "b", rows=30)))

    assert settle_data(other, store, _RUN) == first


def test_changed_data_is_refused(tmp_path: Path, store: Store) -> None:
    """A file that changed between two attempts is named."""
    file = _built(tmp_path / "data")
    job = _job(tmp_path, manifest=str(file))
    settle_data(job, store, _RUN)
    part = file.with_name("part-00000.parquet")
    part.write_bytes(part.read_bytes()[:-1])

    with pytest.raises(DataError, match=rf"{part} has \d+ bytes, not \d+"):
        settle_data(job, store, _RUN)


def test_another_manifest_in_its_place_is_refused(tmp_path: Path, store: Store) -> None:
    """A manifest that took the place of the one the run began with is not trained on."""
    file = _built(tmp_path / "data")
    job = _job(tmp_path, manifest=str(file))
    settle_data(job, store, _RUN)
    file.write_bytes(_built(tmp_path / "other", rows=30).read_bytes())

    with pytest.raises(DataError, match="was changed after it was written"):
        settle_data(job, store, _RUN)


def test_a_removed_data_set_is_refused(tmp_path: Path, store: Store) -> None:
    """A manifest that is gone is named."""
    file = _built(tmp_path / "data")
    job = _job(tmp_path, manifest=str(file))
    settle_data(job, store, _RUN)
    file.unlink()

    with pytest.raises(DataError, match=f"there is no data manifest at {file}"):
        settle_data(job, store, _RUN)


def test_a_function_that_fails_settles_nothing(tmp_path: Path, store: Store) -> None:
    """What a prepare function does wrong is the user's error, and nothing is written down."""
    (tmp_path / "prepare.py").write_text("def prepare():\n    raise OSError('no network')\n")

    with pytest.raises(UserCodeError, match="OSError: no network"):
        settle_data(_job(tmp_path, prepare="prepare.py:prepare"), store, _RUN)
    assert store.size(_RUN.data) is None


def test_too_little_data_is_refused(tmp_path: Path, store: Store) -> None:
    """A data set without a whole step would train nothing: that is said before Ray is started."""
    file = str(_built(tmp_path / "data"))

    with pytest.raises(SpecError, match=r"data\.train\.batch_size: 13 samples on each of 1 ranks"):
        settle_data(_job(tmp_path, manifest=file, batch_size=13), store, _RUN)
    settle_data(_job(tmp_path, manifest=file, batch_size=13, last="pad"), store, _RUN)


def test_damage_that_may_be_replaced_stops_nobody(tmp_path: Path, store: Store) -> None:
    """The ranks meet it and count it; more of it is refused before there are any."""
    file = _built(tmp_path / "data")
    _damage(file)

    with pytest.raises(DataError, match="row group 0 of"):
        settle_data(_job(tmp_path, manifest=str(file), skip_rows=11), store, _RUN)
    assert settle_data(_job(tmp_path, manifest=str(file), skip_rows=12), store, _RUN)


def test_the_damage_of_a_mixture_is_counted_together(tmp_path: Path, store: Store) -> None:
    """As the ranks count it: what each part could have alone is not what all may have."""
    files = [_built(tmp_path / name) for name in ("a", "b")]
    for file in files:
        _damage(file)
    parts = [{"manifest": str(file)} for file in files]

    with pytest.raises(DataError, match="row group 0 of"):
        settle_data(_job(tmp_path, mix=parts, skip_rows=23), store, _RUN)
    assert settle_data(_job(tmp_path, mix=parts, skip_rows=24), store, _RUN)


@pytest.mark.parametrize("named", ["manifest", "prepare"])
def test_a_project_that_moved_goes_on(tmp_path: Path, named: str) -> None:
    """What its runs have begun with moved along, or lies elsewhere on another machine."""
    before = tmp_path / "before"
    before.mkdir()
    (before / "prepare.py").write_text(_PREPARE)
    manifest = _built(before / "data").relative_to(before)
    value = str(manifest) if named == "manifest" else "prepare.py:prepare"
    dataset: dict[str, Any] = {named: value}
    state = Store(str(before / ".footplate" / "runs"))
    first = settle_data(_job(before, **dataset), state, _RUN)
    after = before.rename(tmp_path / "after")
    state = Store(str(after / ".footplate" / "runs"))

    found = settle_data(_job(after, **dataset), state, _RUN)

    assert found["train"].version == first["train"].version
    assert Path(found["train"].manifest).is_relative_to(after)


def test_other_data_in_the_place_of_what_moved_is_refused(tmp_path: Path, store: Store) -> None:
    """Only what the run has begun with counts, wherever the spec now leads."""
    first = _built(tmp_path / "data")
    settle_data(_job(tmp_path, manifest=str(first)), store, _RUN)
    first.unlink()
    other = _built(tmp_path / "other", rows=30)

    with pytest.raises(DataError, match=f"there is no data manifest at {first}"):
        settle_data(_job(tmp_path, manifest=str(other)), store, _RUN)


def test_columns_of_what_was_just_prepared_are_looked_at(tmp_path: Path, store: Store) -> None:
    """They could not be before; that is no fault of the training code, which would meet it."""
    (tmp_path / "prepare.py").write_text(_PREPARE)
    bucket = {"column": "number", "samples": 4}

    with pytest.raises(SpecError, match="'number' of numbers is int64, not a list of numbers"):
        settle_data(_job(tmp_path, prepare="prepare.py:prepare", bucket=bucket), store, _RUN)
