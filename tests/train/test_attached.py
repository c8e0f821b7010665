"""The one call of a script with its own trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

import footplate.train
from footplate.errors import UserCodeError
from footplate.store import RunRecord, Store, to_json

_UID = "uid"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(str(tmp_path / "runs"))


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    """A run whose third attempt is this process."""
    spec = {
        "name": "own",
        "command": ["python", "own.py"],
        "store": {"uri": "runs"},
        "params": {"lr": 0.1},
        "workers": 3,
    }
    record = RunRecord(
        uid=_UID, namespace="team", name="own", created=1.0, spec=spec, folder=str(tmp_path)
    )
    file = tmp_path / "job.json"
    file.write_bytes(to_json(record))
    monkeypatch.setenv("FOOTPLATE_JOB_FILE", str(file))
    monkeypatch.setenv("FOOTPLATE_ATTEMPT", "3")
    monkeypatch.setenv("FOOTPLATE_MLFLOW_RUN_ID", "abc")
    monkeypatch.setenv("FOOTPLATE_RANK_RESOURCES", '{"CPU": 1.5}')
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    return record


def _checkpoint(record: RunRecord, store: Store, attempt: int, name: str, listed: str) -> None:
    folder = f"{record.paths.attempt(attempt).ray}/trainer"
    store.put(f"{folder}/{name}/state.pt", b"x")
    store.put(f"{folder}/checkpoint_manager_snapshot.json", listed.encode())


def _listed(name: str) -> str:
    return f'{{"latest_checkpoint_result": {{"checkpoint_dir_name": "{name}"}}}}'


def test_a_script_learns_which_run_it_is(record: RunRecord, store: Store) -> None:
    """Name, parameters, and a folder for this attempt alone."""
    run = footplate.train.attach()
    assert (run.uid, run.name, run.attempt, run.params) == (_UID, "own", 3, {"lr": 0.1})
    assert run.storage_path == store.locate(record.paths.attempt(3).ray)
    assert run.resume_from is None


def test_the_newest_complete_checkpoint_is_taken_up(record: RunRecord, store: Store) -> None:
    """What Ray's list does not name is incomplete; a list that a kill tore names nothing."""
    _checkpoint(record, store, 1, "checkpoint_7", _listed("checkpoint_7"))
    run = footplate.train.attach()
    assert run.resume_from is not None
    expected = store.locate(f"{record.paths.attempt(1).ray}/trainer/checkpoint_7")
    assert run.resume_from.path == expected
    with run.resume_from.as_directory() as folder:
        assert (Path(folder) / "state.pt").read_bytes() == b"x"
    for torn in ("", '{"latest_che', '{"latest_checkpoint_result": null}', _listed("gone")):
        _checkpoint(record, store, 2, "checkpoint_9", torn)
        again = footplate.train.attach().resume_from
        assert again is not None
        assert again.path == expected
    # Another attempt's, not this one's own.
    _checkpoint(record, store, 3, "checkpoint_9", _listed("checkpoint_9"))
    assert footplate.train.attach().resume_from is not None


def test_the_trainer_is_told_where(record: RunRecord) -> None:
    """The rest of its configuration is the script's."""
    run = footplate.train.attach()
    scaling = run.scaling_config(placement_strategy="SPREAD")
    assert (scaling.num_workers, scaling.use_gpu) == (3, False)
    assert scaling.resources_per_worker == {"CPU": 1.5}
    config = run.run_config(worker_runtime_env={"env_vars": {"A": "1"}})
    assert (config.name, config.storage_path) == ("trainer", run.storage_path)
    variables = config.worker_runtime_env["env_vars"]
    assert variables["A"] == "1"
    assert variables["FOOTPLATE_ATTEMPT"] == "3"
    assert variables["MLFLOW_RUN_ID"] == "abc"
    with pytest.raises(TypeError, match="storage_path"):
        run.run_config(storage_path="/elsewhere")


def test_a_bucket_is_reached_as_the_spec_says(record: RunRecord, tmp_path: Path) -> None:
    """Ray takes the file system, with the endpoint in it, and a path without a scheme."""
    from footplate.train.attached import _in_ray

    store = Store("s3://bucket/runs", endpoint="http://127.0.0.1:9", region="eu-central-1")
    filesystem, path = _in_ray(store, "team/own")
    assert path == "bucket/runs/team/own"
    assert filesystem is not None
    assert (filesystem.type_name, filesystem.region) == ("s3", "eu-central-1")


def test_a_process_that_is_no_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started by hand, a script says how it is started."""
    monkeypatch.delenv("FOOTPLATE_JOB_FILE", raising=False)
    with pytest.raises(UserCodeError, match="this process is not part of a run"):
        footplate.train.attach()
