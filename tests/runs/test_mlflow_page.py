"""Where MLflow shows a run that is somewhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from footplate.runs.mlflow_page import mlflow_page
from footplate.store import RunRecord


def _record(store: str, **tracking: str) -> RunRecord:
    spec: dict[str, Any] = {
        "name": "digits",
        "entrypoint": "digits:train",
        "runtime": "torch@1",
        "limits": {"epochs": 1},
        "store": {"uri": store},
        "tracking": tracking,
    }
    return RunRecord(uid="uid", namespace="team", name="digits", created=0, spec=spec)


def _fill_slot(store: Path, number: int, run_id: str) -> None:
    slot = store / "team" / "digits" / "uid" / "mlflow" / f"{number:04d}.json"
    slot.parent.mkdir(parents=True, exist_ok=True)
    slot.write_text(f'{{"run_id": "{run_id}"}}')


def test_the_newest_run_counts(tmp_path: Path) -> None:
    """A run of MLflow that somebody has deleted is replaced by another one."""
    _fill_slot(tmp_path, 1, "deleted")
    _fill_slot(tmp_path, 2, "there")
    page = mlflow_page(_record(str(tmp_path), uri="https://mlflow.example/"))
    assert page == "https://mlflow.example/#/runs/there"


@pytest.mark.parametrize("store", ["{tmp_path}", "s3://none/none"])
def test_the_front_page_until_more_is_known(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the driver has said which run it is, and where the store can't be read from here."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    record = _record(store.format(tmp_path=tmp_path), uri="https://mlflow.example")
    assert mlflow_page(record) == "https://mlflow.example"


def test_a_database_is_shown_by_a_command(tmp_path: Path) -> None:
    """It has no page; a command serves one."""
    page = mlflow_page(_record(str(tmp_path), uri="sqlite:////data/mlflow.db"))
    assert page == "mlflow ui --backend-store-uri sqlite:////data/mlflow.db"


def test_no_mlflow() -> None:
    """A store in a bucket has no default for it, and the store is not asked."""
    assert mlflow_page(_record("s3://bucket/runs")) is None
