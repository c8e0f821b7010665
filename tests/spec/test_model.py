"""The job as a Python object."""

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.errors import SpecError
from footplate.spec import Job, Limits
from footplate.spec.schema import json_schema

VALUES: dict[str, Any] = {
    "name": "digits",
    "entrypoint": "digits:train",
    "workers": {"count": 2, "gpus": 4, "memory": "1.5Gi"},
    "queue": {"name": "research"},
    "limits": {"epochs": 2, "max_steps": 100},
    "data": {
        "train": {"manifest": "a.json", "batch_size": 8, "columns": ["x", "y"]},
        "valid": {"prepare": "p.py:f", "options": {"n": [1, 2]}, "batch_size": 8},
    },
    "checkpoint": {
        "every": "500 steps",
        "keep": {"last": 3, "best": 2, "by": "valid/accuracy", "mode": "max", "every": "9 epochs"},
    },
    "env": {"A": "1e-5"},
    "params": {"lr": 0.1, "layers": [1, 2], "name": "x"},
}


def job(**changes: Any) -> Job:
    """A job with some keys changed."""
    return Job.from_dict(VALUES | changes, folder=Path("/project"), source="test")


def test_survives_json_and_back() -> None:
    """What a run record holds is the job, all of it."""
    values = json.loads(json.dumps(job().to_dict()))
    again = Job.from_dict(values, folder=Path("/project"), source="record")
    assert again == job()
    assert again.to_dict() == job().to_dict()


names = st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)
params = st.dictionaries(
    st.text(max_size=5),
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
)


@given(names, st.integers(1, 1000), st.integers(0, 16), st.integers(0, 2**63 - 1), params)
def test_any_valid_job_survives_json_and_back(
    name: str, count: int, gpus: int, seed: int, own: dict[str, Any]
) -> None:
    """No value is lost or altered on the way through a record, null parameters excepted."""
    own = {key: value for key, value in own.items() if value is not None}
    before = job(name=name, workers={"count": count, "gpus": gpus}, seed=seed, params=own)
    values = json.loads(json.dumps(before.to_dict()))
    assert Job.from_dict(values, folder=Path("/project"), source="record") == before


@pytest.mark.parametrize("name", ["a", "a" * 40, "digits-2", "a-b"])
def test_accepts_names_that_kubernetes_accepts(name: str) -> None:
    """Names are DNS labels with room for what is derived from them."""
    assert job(name=name).name == name


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a-", "a.b", "a_b", "a" * 41, "a\n"])
def test_refuses_names_that_kubernetes_would_refuse(name: str) -> None:
    """A bad name is refused here, not by a controller that then holds quota for ever."""
    with pytest.raises(SpecError, match="name"):
        job(name=name)


@pytest.mark.parametrize(
    ("workers", "ranks"),
    [({}, 1), ({"count": 3}, 3), ({"ranks": 2, "count": 3}, 6), ({"gpus": 8, "count": 2}, 16)],
)
def test_world_size_counts_training_processes(workers: dict[str, int], ranks: int) -> None:
    """One rank for each GPU, or as many as said on CPUs."""
    assert job(workers=workers).workers.world_size == ranks


def test_replace_changes_the_keys_it_names() -> None:
    """A change of one key keeps the rest of its section."""
    changed = job().replace(workers=8, limits={"epochs": 3}, params={"lr": 0.2})
    assert (changed.workers.count, changed.workers.gpus) == (8, 4)
    assert changed.limits == Limits(epochs=3, max_steps=100)
    assert changed.params == {"lr": 0.2, "layers": [1, 2], "name": "x"}
    assert changed.folder == job().folder
    assert job().workers.count == 2


def test_replace_refuses_what_a_file_could_not_say() -> None:
    """There is no way to make an invalid job."""
    with pytest.raises(SpecError, match=r"digits.replace: 2 problems"):
        job().replace(workers=0, colour="red")


def test_is_frozen() -> None:
    """A job that was checked stays as it was checked."""
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        job().seed = 1  # type: ignore[misc]


def test_the_schema_for_editors_knows_every_key_and_the_shorthand() -> None:
    """An editor marks an unknown key, and does not mark `workers = 8`."""
    schema = json_schema()
    assert schema["properties"].keys() == Job.model_fields.keys()
    assert schema["additionalProperties"] is False
    for short in ("workers", "data_workers"):
        assert {"type": "integer"} in schema["properties"][short]["anyOf"]
    assert schema["$defs"]["Checkpoint"]["properties"]["every"]["default"] == "auto"


@pytest.mark.parametrize(
    ("section", "key", "uri"),
    [
        ("tracking", "uri", "https://me:secret@mlflow.example.com"),
        ("store", "uri", "s3://key:secret@bucket/runs"),
        ("store", "endpoint", "http://key:secret@127.0.0.1:9000"),
    ],
)
def test_credentials_in_a_uri_are_refused(section: str, key: str, uri: str) -> None:
    """They would be written to the store, to MLflow and into the cluster's objects."""
    with pytest.raises(SpecError, match="holds credentials") as refused:
        job(**{section: {key: uri}})
    assert refused.value.problems[0].where == f"{section}.{key}"
    assert "secret@" not in str(refused.value)


SCRIPT: dict[str, Any] = {"name": "own", "command": ["python", "own.py", "--fast"]}


def test_a_command_is_enough() -> None:
    """A script knows its data and its end; both are kept through a record."""
    own = Job.from_dict(SCRIPT, folder=Path("/project"), source="test")
    assert own.command == ("python", "own.py", "--fast")
    assert (own.entrypoint, own.limits, own.data) == (None, None, {})
    values = json.loads(json.dumps(own.to_dict()))
    assert Job.from_dict(values, folder=Path("/project"), source="record") == own


@pytest.mark.parametrize(
    ("values", "problems"),
    [
        ({"name": "a"}, ["entrypoint: is required", "limits: is required"]),
        ({"name": "a", "limits": {"epochs": 1}}, ["entrypoint: is required"]),
        ({"name": "a", "entrypoint": "a:b"}, ["limits: is required"]),
        (
            SCRIPT | {"entrypoint": "a:b"},
            ["entrypoint: name what trains by exactly one of entrypoint and command"],
        ),
        (
            {"name": "a", "command": []},
            ["command: tuple should have at least 1 item after validation, not 0, not []"],
        ),
    ],
)
def test_there_is_one_way_to_train(values: dict[str, Any], problems: list[str]) -> None:
    """A function, which needs limits, or a command; never neither and never both."""
    with pytest.raises(SpecError) as refused:
        Job.from_dict(values, folder=Path("/project"), source="test")
    assert [str(problem) for problem in refused.value.problems] == problems


@pytest.mark.parametrize(
    ("values", "module"),
    [
        ({}, "digits"),
        ({"entrypoint": "a.b:train"}, "a.b"),
        (SCRIPT, "own"),
        ({"name": "a", "command": ["python", "-u", "jobs/own.py", "x.py"]}, "jobs.own"),
        ({"name": "a", "command": ["torchrun", "-m", "jobs.own"]}, "jobs.own"),
        ({"name": "a", "command": ["bash", "run.sh"]}, "bash"),
    ],
)
def test_training_begins_with_a_module(values: dict[str, Any], module: str) -> None:
    """By it the code of a run is told apart from that of another."""
    values = values if "command" in values else VALUES | values
    assert Job.from_dict(values, folder=Path("/project"), source="test").module == module
