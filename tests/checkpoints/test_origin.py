"""A run that starts from the checkpoint of another one: found once, written down, kept there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_files import make_checkpoint
from footplate.checkpoints import discard, pin, read_pins, unpin
from footplate.checkpoints.index import data_file
from footplate.checkpoints.origin import Origin, find_origin, let_go, settle_origin
from footplate.checkpoints.restore import CheckpointReader
from footplate.errors import CheckpointError, RunNotFoundError, SpecError
from footplate.spec import Job
from footplate.store import CheckpointName, Claim, RunPaths, RunRecord, Store, claim_next, to_json

_UID = "0c8b3c1e-7d55-4c7e-9a39-6f3f1c0e1a00"
_NEW = RunPaths(namespace="local", name="tuned", uid="new")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with two runs of one name, of which the newer has two checkpoints."""
    store = Store(str(tmp_path / "runs"))
    _run(store, "older", created=1.0, steps=(50,))
    _run(store, _UID, created=2.0, steps=(100, 200))
    return store


def _run(store: Store, uid: str, *, created: float, steps: tuple[int, ...]) -> RunPaths:
    run = RunPaths(namespace="local", name="base", uid=uid)
    record = RunRecord(uid=uid, namespace="local", name="base", created=created, spec={})
    store.put(run.record, to_json(record))
    claim = Claim(attempt=1, token="token", host="here", pid=1, claimed=1.0, spec={})  # noqa: S106
    claim_next(store, run, claim)
    for step in steps:
        state = {"model": {"w": torch.full((100,), float(step))}}
        make_checkpoint(store, run.checkpoint(CheckpointName(step, 1)), state, step=step)
    return run


def _job(**init_from: Any) -> Job:
    values = {"name": "tuned", "entrypoint": "m:f", "limits": {"epochs": 1}}
    return Job.from_dict(values | {"init_from": init_from}, folder=Path("/"), source="tuned")


@pytest.mark.parametrize("wanted", ["base", _UID], ids=["name", "uid"])
def test_a_run_is_found_by_its_name_or_uid(store: Store, wanted: str) -> None:
    """Of a name the newest run, of a run the newest checkpoint."""
    origin = find_origin(_job(run=wanted), store, _NEW)
    assert origin == Origin(
        uri=store.uri,
        folder=f"local/base/{_UID}/checkpoints/step-00000200.a0001",
        checkpoint="step-00000200.a0001",
        of=f"run base ({_UID})",
        step=200,
        what="weights",
        pinned=True,
    )
    assert str(origin) == f"weights of run base ({_UID}) at step 200"
    its_store, manifest = origin.open()
    loaded = CheckpointReader(its_store, origin.folder, manifest).load("model")
    assert loaded["w"].tolist() == [200.0] * 100


def test_the_run_itself_is_not_what_it_starts_from(store: Store) -> None:
    """One of the same name is another one."""
    itself = RunPaths(namespace="local", name="base", uid=_UID)
    assert find_origin(_job(run="base"), store, itself).step == 50
    store.delete_folder("local/base/older")
    with pytest.raises(RunNotFoundError, match="there is no other run base"):
        find_origin(_job(run="base"), store, itself)


def test_a_step_can_be_said(store: Store) -> None:
    """One that is not there is told with those that are."""
    assert find_origin(_job(run="base", step=100, what="everything"), store, _NEW).step == 100
    with pytest.raises(CheckpointError, match="no checkpoint of step 150") as caught:
        find_origin(_job(run="base", step=150), store, _NEW)
    assert caught.value.hint == "Those that it has are of the steps 100, 200."


def test_an_unknown_run_is_answered_with_the_known_ones(store: Store) -> None:
    """The nearest, if one is near."""
    with pytest.raises(RunNotFoundError, match="there is no run bsae") as caught:
        find_origin(_job(run="bsae"), store, _NEW)
    assert caught.value.hint == "Did you mean base?"
    with pytest.raises(RunNotFoundError) as caught:
        find_origin(_job(run="zzz"), store, _NEW)
    assert caught.value.hint.startswith("There are base; another store")
    with pytest.raises(RunNotFoundError, match="there is no run"):
        find_origin(_job(run=_UID.replace("0", "1")), store, _NEW)


def test_a_damaged_checkpoint_is_passed_over(store: Store) -> None:
    """Unless it is the one that was asked for; and none at all is an error that says why."""
    run = RunPaths(namespace="local", name="base", uid=_UID)
    newest, before = (run.checkpoint(CheckpointName(step, 1)) for step in (200, 100))
    store.put(f"{newest}/{data_file(0)}", b"short")
    assert find_origin(_job(run="base"), store, _NEW).step == 100
    with pytest.raises(CheckpointError, match="5 of 400 bytes"):
        find_origin(_job(run="base", step=200), store, _NEW)
    store.put(f"{before}/{data_file(0)}", b"short")
    with pytest.raises(CheckpointError, match="has no checkpoint to start from") as caught:
        find_origin(_job(run="base"), store, _NEW)
    assert caught.value.hint.count("5 of 400 bytes") == 2


def test_a_folder_elsewhere_is_found_by_its_uri(store: Store, tmp_path: Path) -> None:
    """Of a run or of a checkpoint, wherever that was copied to."""
    own = Store(str(tmp_path / "own"))
    of_run = find_origin(_job(uri=f"{store.uri}/local/base/{_UID}/"), own, _NEW)
    assert (of_run.uri, of_run.step) == (store.uri, 200)
    name = "step-00000100.a0001"
    folder = f"{store.uri}/local/base/{_UID}/checkpoints/{name}"
    found = find_origin(_job(uri=folder), own, _NEW)
    assert (found.folder, found.step, found.of) == (name, 100, folder)
    copy = tmp_path / "best"
    Path(folder).rename(copy)
    found = find_origin(_job(uri="best").at(tmp_path), own, _NEW)
    assert (found.folder, found.checkpoint) == ("best", name)
    found.open()
    with pytest.raises(CheckpointError, match="is of step 100, not 7"):
        find_origin(_job(uri=str(copy), step=7), own, _NEW)


@pytest.mark.parametrize("place", ["nothing", "local", "local/base", "local/base/nobody"])
def test_another_folder_is_neither(store: Store, place: str) -> None:
    """And none is made there."""
    before = sorted(Path(store.uri).rglob("*"))
    with pytest.raises(CheckpointError, match=r"neither a run nor a checkpoint|is not there"):
        find_origin(_job(uri=f"{store.uri}/{place}"), store, _NEW)
    with pytest.raises(CheckpointError):
        find_origin(_job(uri=f"{store.uri}/absent/{place}"), store, _NEW)
    assert sorted(Path(store.uri).rglob("*")) == before


def test_it_is_settled_once(store: Store) -> None:
    """Later attempts start from the same, which stays as long as it is needed."""
    job, run = _job(run="base"), RunPaths(namespace="local", name="base", uid=_UID)
    origin = settle_origin(job, store, _NEW)
    assert origin is not None
    assert {pin.checkpoint for pin in read_pins(store, run).values()} == {"step-00000200.a0001"}
    state = {"model": {"w": torch.zeros(1)}}
    make_checkpoint(store, run.checkpoint(CheckpointName(300, 1)), state, step=300)
    assert settle_origin(job, store, _NEW) == origin
    assert settle_origin(_job(run="another"), store, _NEW) == origin
    let_go(origin, _NEW)
    let_go(origin, _NEW)
    assert read_pins(store, run) == {}
    discard(store, run, CheckpointName(200, 1))
    with pytest.raises(CheckpointError, match="is missing"):
        origin.open()


def test_a_driver_that_was_killed_while_settling_is_no_obstacle(store: Store) -> None:
    """Its pin is on what was newest then; the next one may find something newer."""
    run = RunPaths(namespace="local", name="base", uid=_UID)
    settle_origin(_job(run="base", step=100), store, _NEW)
    store.delete(_NEW.init)
    origin = settle_origin(_job(run="base"), store, _NEW)
    assert origin is not None
    assert [pin.checkpoint for pin in read_pins(store, run).values()] == [origin.checkpoint]


def test_a_later_attempt_sees_to_the_pin_too(store: Store) -> None:
    """A driver may be killed between writing down what it starts from and pinning that."""
    job, run = _job(run="base"), RunPaths(namespace="local", name="base", uid=_UID)
    origin = settle_origin(job, store, _NEW)
    assert origin is not None
    unpin(store, run, f"init-{_NEW.uid}")
    assert settle_origin(job, store, _NEW) == origin
    assert list(read_pins(store, run)) == ["init-new"]
    discard(store, run, CheckpointName(200, 1))
    found = settle_origin(job, store, _NEW)
    assert found is not None
    assert (found.step, [pin.checkpoint for pin in read_pins(store, run).values()]) == (
        100,
        ["step-00000100.a0001"],
    )
    assert settle_origin(job, store, _NEW) == found


def test_what_was_let_go_is_not_pinned_again(store: Store) -> None:
    """A run with a checkpoint of its own needs no other."""
    job, run = _job(run="base"), RunPaths(namespace="local", name="base", uid=_UID)
    origin = settle_origin(job, store, _NEW)
    assert origin is not None
    claim = Claim(attempt=1, token="token", host="here", pid=1, claimed=1.0, spec={})  # noqa: S106
    claim_next(store, _NEW, claim)
    state = {"model": {"w": torch.zeros(1)}}
    make_checkpoint(store, _NEW.checkpoint(CheckpointName(7, 1)), state, step=7)
    let_go(origin, _NEW)
    assert settle_origin(job, store, _NEW) == origin
    assert read_pins(store, run) == {}


def test_nothing_is_written_to_or_removed_from_a_store_of_others(
    store: Store, tmp_path: Path
) -> None:
    """It may not be ours to write to, and a pin of that name there is none of this run."""
    own, run = Store(str(tmp_path / "own")), RunPaths(namespace="local", name="base", uid=_UID)
    pin(store, run, f"init-{_NEW.uid}", CheckpointName(100, 1), by="ada", time=1.0)
    before = sorted(Path(store.uri).rglob("*"))
    origin = settle_origin(_job(uri=f"{store.uri}/local/base/{_UID}"), own, _NEW)
    assert origin is not None
    assert not origin.pinned
    let_go(origin, _NEW)
    assert sorted(Path(store.uri).rglob("*")) == before


def test_without_init_from_a_run_starts_at_the_beginning(store: Store) -> None:
    """And nothing is written down."""
    job = Job.from_dict(
        {"name": "tuned", "entrypoint": "m:f", "limits": {"epochs": 1}},
        folder=Path("/"),
        source="tuned",
    )
    assert settle_origin(job, store, _NEW) is None
    assert store.size(_NEW.init) is None


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "exactly one of run and uri"),
        ({"run": "a", "uri": "b"}, "exactly one of run and uri"),
        ({"run": "a", "endpoint": "http://x"}, "endpoint and region are of uri"),
        ({"run": "a", "what": "half"}, "'weights' or 'everything'"),
        ({"run": "a", "step": 0}, "greater than or equal to 1"),
        ({"uri": "s3://key:secret@bucket/x"}, "holds credentials"),
    ],
)
def test_a_wrong_section_is_refused(values: dict[str, Any], problem: str) -> None:
    """With all problems, as any other."""
    with pytest.raises(SpecError, match=problem):
        _job(**values)


def test_a_command_starts_from_nothing() -> None:
    """Its trainer restores what it saved itself."""
    values = {"name": "own", "command": ["python", "x.py"], "init_from": {"run": "base"}}
    with pytest.raises(SpecError, match="init_from: a command restores its own state"):
        Job.from_dict(values, folder=Path("/"), source="own")
