"""The sections that say what is trained on, and in which order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from footplate.errors import SpecError
from footplate.spec import Cache, Dataset, DataWorkers, Job, Pack

_PARTS: list[dict[str, Any]] = [
    {"manifest": "web.json", "weight": 3},
    {"prepare": "books.py:train", "options": {"max_bytes": 9}},
]


def _job(train: dict[str, Any], **keys: Any) -> Job:
    values = {
        "name": "toy",
        "entrypoint": "toy:train",
        "limits": {"epochs": 1},
        "data": {"train": {"batch_size": 4, **train}},
    }
    return Job.from_dict(values | keys, folder=Path("/project"), source="test")


def _train(**keys: Any) -> Dataset:
    return _job({"manifest": "a.json", **keys}).data["train"]


def _refused(train: dict[str, Any], **keys: Any) -> tuple[str, str]:
    """Where the one problem is, and what."""
    with pytest.raises(SpecError) as caught:
        _job(train, **keys)
    (problem,) = caught.value.problems
    return problem.where, problem.what


def test_little_has_to_be_said() -> None:
    """What a data set does unless told otherwise is part of what every run means."""
    dataset = _train()

    assert (dataset.shuffle, dataset.pool, dataset.last, dataset.skip_rows) == (True, 8, "drop", 0)
    assert (dataset.columns, dataset.map, dataset.pack, dataset.bucket) == (None, (), None, None)
    assert (dataset.parts, dataset.weights) == ((dataset,), (1.0,))
    assert dataset.named_parts("train") == {"train": dataset}


def test_data_workers_are_for_what_functions_change() -> None:
    """A number alone is how many; a run has none unless it says so."""
    job = _job({"manifest": "a.json", "map": ["toy:turned"]}, data_workers=2)

    assert job.data_workers == DataWorkers(count=2, cpus="4", memory="8Gi")
    assert job.replace(data_workers={"cpus": 16}).data_workers == DataWorkers(count=2, cpus="16")
    assert _job({"manifest": "a.json"}).data_workers is None


@pytest.mark.parametrize(
    ("data_workers", "where", "what"),
    [
        (1, "data_workers", "no data set has map, so there is nothing for data workers to do"),
        ({"count": 0}, "data_workers.count", "greater than or equal to 1"),
        ({"gpus": 1}, "data_workers.gpus", "unknown key"),
        ({"memroy": "1Gi"}, "data_workers.memroy", "did you mean 'memory'?"),
    ],
)
def test_data_workers_without_sense_are_refused(data_workers: Any, where: str, what: str) -> None:
    """Pods that would hold quota for nothing, and keys that they do not have."""
    found, told = _refused({"manifest": "a.json"}, data_workers=data_workers)
    assert found == where
    assert what in told


@pytest.mark.parametrize(
    "keys",
    [
        {"map": ["toy:turned", "lib.images:cropped"], "columns": ["image"]},
        {"pack": {"column": "tokens", "length": 2048}, "pool": 32, "last": "keep"},
        {"bucket": {"column": "tokens", "samples": 64, "pad": -1}, "last": "pad"},
        {"columns": ["tokens"], "skip_rows": 10},
    ],
)
def test_all_that_is_said_is_kept(keys: dict[str, Any]) -> None:
    """A record of the job holds it, and gives it back."""
    before = _job({"manifest": "a.json", **keys})

    values = json.loads(json.dumps(before.to_dict()))

    assert values["data"]["train"].items() >= keys.items()
    assert Job.from_dict(values, folder=Path("/project"), source="record") == before


def test_the_parts_of_a_mixture_have_names() -> None:
    """Each is recorded by a name of its own; a weight that is not given counts once."""
    job = _job({"mix": _PARTS})
    dataset = job.data["train"]

    assert dataset.weights == (3.0, 1.0)
    assert [part.manifest for part in dataset.parts] == ["web.json", None]
    assert list(job.data_parts) == ["train.mix.0", "train.mix.1"]
    assert job.data_parts["train.mix.1"].options == {"max_bytes": 9}
    values = json.loads(json.dumps(job.to_dict()))
    assert Job.from_dict(values, folder=Path("/project"), source="record") == job


@pytest.mark.parametrize(
    ("train", "where", "what"),
    [
        ({"mix": _PARTS[:1]}, "data.train.mix", "a mixture has at least two parts"),
        ({"mix": _PARTS, "manifest": "a.json"}, "data.train", "exactly one of manifest, prepare"),
        ({"mix": _PARTS, "options": {"n": 1}}, "data.train", "options are arguments of prepare"),
        ({"mix": [{}, _PARTS[0]]}, "data.train.mix.0", "exactly one of manifest and prepare"),
        (
            {"mix": [{**_PARTS[0], "prepare": "p.py:f"}, _PARTS[1]]},
            "data.train.mix.0",
            "exactly one of manifest and prepare",
        ),
        ({"mix": [{**_PARTS[0], "weight": 0}, _PARTS[1]]}, "data.train.mix.0.weight", "than 0"),
        (
            {"mix": [{**_PARTS[0], "weight": float("inf")}, _PARTS[1]]},
            "data.train.mix.0.weight",
            "finite",
        ),
        (
            {"mix": [_PARTS[0], {**_PARTS[0], "wieght": 2}]},
            "data.train.mix.1.wieght",
            "unknown key; did you mean 'weight'?",
        ),
    ],
)
def test_a_mixture_says_its_parts_plainly(train: dict[str, Any], where: str, what: str) -> None:
    """What it is made of, and how much of each, leaves no doubt."""
    found = _refused(train)

    assert found[0] == where
    assert what in found[1]


@pytest.mark.parametrize(
    ("keys", "where", "what"),
    [
        ({"batch_size": 0}, ".batch_size", "greater than or equal to 1"),
        ({"pool": 0}, ".pool", "greater than or equal to 1"),
        ({"columns": []}, ".columns", "at least 1"),
        ({"map": ["turned"]}, ".map.0", "not of the form wanted: Functions 'module:function'"),
        ({"map": ["toy:Turner.turned"]}, ".map.0", "is not of the form wanted"),
        ({"last": "repeat"}, ".last", "'drop', 'pad' or 'keep'"),
        ({"skip_rows": -1}, ".skip_rows", "greater than or equal to 0"),
        ({"pack": {"column": "a"}}, ".pack.length", "is required"),
        ({"pack": {"length": 8}}, ".pack.column", "is required"),
        ({"bucket": {"column": "a", "samples": 1}}, ".bucket.samples", "greater than or equal"),
        (
            {"pack": {"column": "a", "length": 8}, "bucket": {"column": "a"}},
            "",
            "packed sequences have one length: remove bucket or pack",
        ),
        (
            {"pack": {"column": "a", "length": 8}, "skip_rows": 1},
            "",
            "remove skip_rows or pack",
        ),
        ({"bucket": {"column": "a"}, "skip_rows": 1}, "", "remove skip_rows or bucket"),
        ({"map": ["toy:turned"], "skip_rows": 1}, "", "remove skip_rows or map"),
    ],
)
def test_what_cannot_be_is_refused(keys: dict[str, Any], where: str, what: str) -> None:
    """A slip is named when the file is read, with its key and what would be right."""
    found = _refused({"manifest": "a.json", **keys})

    assert found[0] == f"data.train{where}"
    assert what in found[1]


def test_the_cache_is_asked_for() -> None:
    """None by itself; a table without keys is enough."""
    assert _job({"manifest": "a.json"}).cache is None
    assert _job({"manifest": "a.json"}, cache={}).cache == Cache(size="50Gi", host_path=None)


@pytest.mark.parametrize(
    ("cache", "where", "what"),
    [
        ({"size": "50 GB"}, "cache.size", "'50 GB' is no Kubernetes quantity"),
        ({"size": 0}, "cache.size", "is not positive"),
        ({"host_path": "nvme"}, "cache.host_path", "'nvme' is not of the form wanted"),
    ],
)
def test_a_cache_that_cannot_be(cache: dict[str, Any], where: str, what: str) -> None:
    """What no node could give is refused with the key."""
    found = _refused({"manifest": "a.json"}, cache=cache)

    assert found[0] == where
    assert what in found[1]


def test_sections_can_be_compared_and_hashed() -> None:
    """What is read is a key of what was opened already."""
    assert len({Pack(column="a", length=8), Pack(column="a", length=8)}) == 1
