"""Where MLflow is, for every way to say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.spec import Job
from footplate.tracking import experiment_name, open_hint, shown_uri, tracking_uri


def _job(folder: Path, **sections: object) -> Job:
    values = {"name": "digits", "entrypoint": "digits:train", "limits": {"epochs": 1}} | sections
    return Job.from_dict(values, folder=folder, source="test")


def test_default_is_a_database_beside_the_store(tmp_path: Path) -> None:
    """All runs of a laptop's folder are in one place, wherever the command is typed."""
    assert tracking_uri(_job(tmp_path)) == f"sqlite:///{tmp_path}/.footplate/mlflow.db"
    job = _job(tmp_path, store={"uri": "/data/runs"})
    assert tracking_uri(job) == "sqlite:////data/mlflow.db"


def test_a_bucket_has_no_default(tmp_path: Path) -> None:
    """A database cannot live in a bucket, and a cluster's pods share no disk."""
    assert tracking_uri(_job(tmp_path, store={"uri": "s3://bucket/runs"})) is None


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("http://mlflow:5000", "http://mlflow:5000"),
        ("postgresql://db/mlflow", "postgresql://db/mlflow"),
        ("databricks", "databricks"),
        ("databricks://profile", "databricks://profile"),
        ("sqlite:///mlflow.db", "sqlite:///{folder}/mlflow.db"),
        ("sqlite:////srv/mlflow.db", "sqlite:////srv/mlflow.db"),
        ("mlruns", "{folder}/mlruns"),
    ],
)
def test_relative_paths_are_those_of_the_spec(tmp_path: Path, uri: str, expected: str) -> None:
    """The driver works in another folder and must find the same database."""
    job = _job(tmp_path, tracking={"uri": uri})
    assert tracking_uri(job) == expected.format(folder=tmp_path)


def test_experiment_is_the_job_unless_named(tmp_path: Path) -> None:
    """Runs of one job are compared with each other."""
    assert experiment_name(_job(tmp_path)) == "digits"
    assert experiment_name(_job(tmp_path, tracking={"experiment": "team/digits"})) == "team/digits"


def test_hint_can_be_pasted() -> None:
    """What is printed opens the run, in a browser or by a command."""
    assert open_hint("http://mlflow:5000", "http://mlflow:5000/#/x") == "http://mlflow:5000/#/x"
    assert open_hint("http://mlflow:5000") == "http://mlflow:5000"
    hint = open_hint("sqlite:////my runs/mlflow.db")
    assert hint == "mlflow ui --backend-store-uri 'sqlite:////my runs/mlflow.db'"


def test_credentials_are_not_shown() -> None:
    """A URI goes into messages, logs and the store; a password does not."""
    assert shown_uri("https://me:secret@mlflow:5000/x") == "https://mlflow:5000/x"
    assert shown_uri("sqlite:////srv/a@b.db") == "sqlite:////srv/a@b.db"
