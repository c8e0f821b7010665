"""`footplate checkpoints` lists, checks, exports, keeps and removes what a run has saved."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from footplate.checkpoints import Retention, committed, pin, unpin
from footplate.checkpoints.integrity import checksum
from footplate.checkpoints.manifest import COMMITTED, DAMAGED, MANIFEST
from footplate.cli.checkpoints import command
from footplate.errors import (
    CheckpointError,
    CheckpointGoneError,
    FencedError,
    FootplateError,
    RunNotFoundError,
    SpecError,
)
from footplate.runs.checkpoints import Checkpoints
from footplate.runs.history import newest_run
from footplate.runs.lock import is_locked, lock_file
from footplate.spec import Keep
from footplate.store import CheckpointName

if TYPE_CHECKING:
    from tests.cli.conftest import StoredRunMaker, StoreMaker

FOOTPLATE = Path(sys.executable).with_name("footplate")


@pytest.fixture
def digits(here: StoreMaker) -> StoredRunMaker:
    """A run that was killed; its second attempt has gone on from step 200."""
    run = here.run(checkpoint={"keep": {"best": 1, "by": "valid/loss"}})
    run.claim(1)
    run.save(100, metrics={"valid/loss": 0.25})
    start = run.save(200)
    run.save(300, metrics={"valid/loss": math.nan})
    run.claim(2, starts_from=start)
    run.save(400, 2, metrics={"valid/loss": 0.125})
    run.save(500, 2, committed=False)
    return run


def _run(*arguments: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], input=answer)


def _done(*arguments: object) -> Result:
    result = _run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def _json(*arguments: object, exit_code: int = 0) -> Any:
    result = _run(*arguments, "-o", "json")
    assert result.exit_code == exit_code, (result.output, result.exception)
    return json.loads(result.stdout)


def _error(*arguments: object, answer: str | None = None) -> FootplateError:
    error = _run(*arguments, answer=answer).exception
    assert isinstance(error, FootplateError)
    return error


def test_all_that_is_there_is_listed(digits: StoredRunMaker) -> None:
    """With what counts, what does not and why, and the metric that the best go by."""
    lines = _done("list", "digits").stdout.splitlines()
    assert lines[0].split() == [
        "STEP", "EPOCH", "SIZE", "AGE", "RANKS", "valid/loss", "STATE", "KEPT", "FOR", "NAME",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:]] == ["100", "200", "300", "400", "500"]
    assert "0.25" in lines[1]
    assert "not counted" in lines[3]
    assert "incomplete" in lines[5]
    found = _json("list", "digits")
    assert {each["step"]: each["state"] for each in found} == {
        100: "counts", 200: "counts", 300: "not counted", 400: "counts", 500: "incomplete",
    }  # fmt: skip
    assert [each["step"] for each in found if each["is_start"]] == [200]
    assert found[3]["manifest"]["metrics"] == {"valid/loss": 0.125}
    assert found[2]["manifest"]["metrics"] == {"valid/loss": "nan"}
    assert found[0]["bytes"] > 500
    assert {each["step"]: each["kept_for"] for each in found if each["kept_for"]} == {
        200: ["last"],
        400: ["last", "best"],
    }
    assert "last, start" in lines[2]


def test_a_damaged_one_is_listed_as_such(digits: StoredRunMaker) -> None:
    """It is nothing that the run would go on from."""
    newest = CheckpointName(400, 2)
    digits.store.put(f"{digits.run.checkpoint(newest)}/{DAMAGED}", b"found so")
    assert _json("list", "digits")[3]["state"] == "damaged"
    assert _json("show", "digits")["step"] == 200


def test_a_run_without_checkpoints(here: StoreMaker) -> None:
    """Says so, and ends well where nothing was asked for."""
    here.run("empty")
    assert "empty uid-1 has no checkpoint" in _done("list", "empty").stderr
    assert _json("list", "empty") == []
    assert isinstance(_error("show", "empty"), CheckpointGoneError)


def test_what_one_holds_is_shown(digits: StoredRunMaker) -> None:
    """The newest that counts, or that of a step, or of a name."""
    shown = _done("show", "digits").stdout
    for text in ("step-00000400.a0002", "counts", "model, optimizer", "valid/loss", "25,600"):
        assert text in shown
    assert _json("show", "digits", 300)["name"] == "step-00000300.a0001"
    facts = _json("show", "digits", "step-00000200.a0001")
    assert facts["location"] == digits.store.locate(digits.run.checkpoint(CheckpointName(200, 1)))
    assert {file["name"] for file in facts["files"]} >= {"state.json", "rank-00001.bin"}
    assert "There are steps 100, 200, 400." in str(_error("show", "digits", 450))


def test_every_byte_is_verified(digits: StoredRunMaker) -> None:
    """What differs is named; marked, the run passes it over."""
    assert "step-00000400.a0002" in _done("verify", "digits").stdout
    checked = _json("verify", "digits", "--all")
    assert [(each["name"], each["wrong"]) for each in checked] == [
        (f"step-00000{step}.a000{attempt}", []) for step, attempt in [(100, 1), (200, 1), (400, 2)]
    ]
    digits.flip(CheckpointName(400, 2))
    result = _run("verify", "digits", 400)
    assert result.exit_code == 14
    assert "rank-00001.bin" in result.stderr
    assert "--mark lets the run pass it over" in result.stderr
    assert len(_json("verify", "digits", 400, "--mark", exit_code=14)[0]["wrong"]) == 1
    assert _json("show", "digits")["step"] == 200
    assert committed(digits.store, digits.run)[-1] == CheckpointName(300, 1)
    assert _run("verify", "digits", 100, "--all").exit_code == 2


def test_a_model_is_exported(digits: StoredRunMaker, tmp_path: Path) -> None:
    """As whole tensors, whoever wrote their parts; by default the model, to a file here."""
    done = _done("export", "digits")
    assert done.stdout.strip() == str(tmp_path / "digits-400.safetensors")
    weight = load_file(tmp_path / "digits-400.safetensors")["weight"]
    assert weight.shape == (4, 3)
    assert weight.unique().tolist() == [400.0]
    facts = _json("export", "digits", 100, "--object", "optimizer", "--to", tmp_path / "o.bin")
    assert facts["object"] == "optimizer"
    assert list(load_file(tmp_path / "o.bin")) == ["state.exp_avg"]
    assert "not 'ema'" in str(_error("export", "digits", "--object", "ema"))
    digits.flip(CheckpointName(400, 2))
    error = _error("export", "digits", "--to", tmp_path / "damaged.safetensors")
    assert isinstance(error, CheckpointError)
    assert not (tmp_path / "damaged.safetensors").exists()
    assert isinstance(_error("export", "digits", 500), CheckpointError)


def test_a_pin_keeps_what_the_policy_would_remove(digits: StoredRunMaker) -> None:
    """Until it is taken away, by its name or by what it holds."""
    assert "is pinned as paper" in _done("pin", "digits", 100, "--as", "paper").stdout
    assert "is pinned as step-100" in _done("pin", "digits", 100).stdout
    assert _json("list", "digits")[0]["pins"] == ["paper", "step-100"]
    assert "the pin paper is on step-00000100.a0001" in str(
        _error("pin", "digits", 200, "--as", "paper")
    )
    Retention(digits.store, digits.run, attempt=2, keep=Keep(last=1)).prune()
    assert committed(digits.store, digits.run) == [
        CheckpointName(100, 1), CheckpointName(200, 1), CheckpointName(400, 2),
    ]  # fmt: skip
    assert "There are paper on" in str(_error("unpin", "digits", "--as", "report"))
    _done("unpin", "digits", "--as", "paper")
    assert "step-100 taken away" in _done("unpin", "digits", 100).stdout
    assert _json("list", "digits")[0]["pins"] == []
    assert _run("unpin", "digits").exit_code == 2
    assert isinstance(_error("unpin", "digits", 100), CheckpointError)


def test_deleting_asks_first(digits: StoredRunMaker) -> None:
    """And does nothing unless it is told to."""
    refused = _run("delete", "digits", 100, 300, answer="n\n")
    assert refused.exit_code == 1
    assert "step-00000300.a0001" in refused.stderr
    assert len(committed(digits.store, digits.run)) == 4
    done = _run("delete", "digits", 100, 300, answer="y\n")
    assert done.exit_code == 0
    assert "step-00000100.a0001 of digits is removed" in done.stdout
    _done("delete", "digits", 400, 500, "--yes")
    assert committed(digits.store, digits.run) == [CheckpointName(200, 1)]
    assert _run("delete", "digits").exit_code == 2


def test_what_is_pinned_is_not_deleted(digits: StoredRunMaker) -> None:
    """Nor is anything else that was named with it."""
    _done("pin", "digits", 100)
    assert "is pinned: step-100" in str(_error("delete", "digits", 300, 100, "--yes"))
    assert len(committed(digits.store, digits.run)) == 4


def test_what_a_live_run_needs_is_not_deleted(here: StoreMaker) -> None:
    """The newest, what it has started from, and what it may be writing; the rest may go."""
    run = here.run(namespace="team")
    run.claim(1)
    steps = [run.save(step) for step in (100, 200, 300)]
    run.claim(2, starts_from=steps[-1])
    run.report(3.0, attempt=2)
    newest = run.save(400, 2)
    run.save(500, 2, committed=False)
    for step in (300, 400, 500):
        error = _error("delete", "digits", step, "--yes")
        assert "it is running, heard of" in error.message
    _done("delete", "digits", 100, "--yes")
    assert committed(run.store, run.run) == [*steps[1:], newest]
    run.end("succeeded", attempt=2)
    _done("delete", "digits", 400, 500, "--yes")
    assert committed(run.store, run.run) == steps[1:]


def test_deleting_looks_again_after_the_question(digits: StoredRunMaker) -> None:
    """The run may have begun to work meanwhile, or somebody has pinned what is to go."""
    found = newest_run(digits.store, "local", "digits")
    checkpoints = Checkpoints(digits.store, found)
    chosen = [checkpoints.find("100"), checkpoints.find("400")]
    for each in chosen:
        checkpoints.check_deletable(each)
    pin(digits.store, digits.run, "late", CheckpointName(100, 1), by="ada", time=1.0)
    with pytest.raises(CheckpointError, match="is pinned: late"):
        list(checkpoints.delete(chosen))
    unpin(digits.store, digits.run, "late")
    digits.claim(3, starts_from=CheckpointName(400, 2))
    digits.report(1.0, attempt=3)
    with pytest.raises(CheckpointError, match="it is running, heard of"):
        list(checkpoints.delete(chosen))
    assert len(committed(digits.store, digits.run)) == 4
    assert [str(each.name) for each in checkpoints.delete(chosen[:1])] == ["step-00000100.a0001"]


def test_deleting_holds_the_run(digits: StoredRunMaker) -> None:
    """No process here begins meanwhile; one elsewhere stops it before the next removal."""
    checkpoints = Checkpoints(digits.store, newest_run(digits.store, "local", "digits"))
    path = lock_file(digits.store, "local", "digits")
    removing = checkpoints.delete([checkpoints.find("100"), checkpoints.find("200")])
    next(removing)
    assert is_locked(path)
    digits.claim(3, starts_from=CheckpointName(200, 1))
    with pytest.raises(FencedError, match="has begun to work again"):
        next(removing)
    assert CheckpointName(200, 1) in committed(digits.store, digits.run)
    assert not is_locked(path)


def test_what_is_not_damaged_is_not_marked(digits: StoredRunMaker) -> None:
    """One of another format; or one that is removed while it is read."""
    newest = CheckpointName(400, 2)
    folder = digits.run.checkpoint(newest)
    checkpoints = Checkpoints(digits.store, newest_run(digits.store, "local", "digits"))
    checkpoint = checkpoints.find("400")
    manifest = digits.store.get(f"{folder}/{MANIFEST}")
    older = manifest.replace(b'"format": 2', b'"format": 1')
    assert older != manifest
    digits.store.put(f"{folder}/{MANIFEST}", older)
    digits.store.put(f"{folder}/{COMMITTED}", checksum(older).encode())
    with pytest.raises(CheckpointError, match="is of format 1"):
        checkpoints.verify(checkpoint, mark=True)
    digits.store.delete(f"{folder}/{COMMITTED}")
    with pytest.raises(CheckpointGoneError, match="not there any more"):
        checkpoints.verify(checkpoint, mark=True)
    assert digits.store.size(f"{folder}/{DAMAGED}") is None


def test_only_what_was_committed_is_exported(digits: StoredRunMaker, tmp_path: Path) -> None:
    """Neither half a checkpoint with a manifest, nor one whose manifest was changed."""
    half, newest = CheckpointName(500, 2), CheckpointName(400, 2)
    folders = [digits.run.checkpoint(name) for name in (half, newest)]
    manifest = digits.store.get(f"{folders[1]}/{MANIFEST}")
    digits.store.put(f"{folders[0]}/{MANIFEST}", manifest.replace(b'"step": 400', b'"step": 500'))
    out = tmp_path / "out.safetensors"
    assert "is incomplete" in _error("export", "digits", 500, "--to", out).args[0]
    digits.store.put(f"{folders[1]}/{MANIFEST}", manifest.replace(b"25600", b"25601"))
    assert "checksum differs" in _error("export", "digits", 400, "--to", out).args[0]
    assert not out.exists()


def test_the_newest_run_of_a_name_is_meant(here: StoreMaker, tmp_path: Path) -> None:
    """An older one by its UID, one of a namespace by that, and any by its spec or its store."""
    for uid, step in (("new", 100), ("old", 200)):
        run = here.run(uid=uid, age_s=10.0 if uid == "new" else 99.0)
        run.claim()
        run.save(step)
    spec = tmp_path / "digits.toml"
    spec.write_text('name = "digits"\nentrypoint = "digits:train"\nlimits.epochs = 1\n')
    assert [each["step"] for each in _json("list", "digits")] == [100]
    for place in (["digits.toml"], ["digits", "--store", here.uri], ["digits", "--store", spec]):
        assert [each["step"] for each in _json("list", *place)] == [100]
        assert [each["step"] for each in _json("list", *place, "--uid", "old")] == [200]
    here.run(namespace="team").claim()
    error = _error("list", "digits", "--store", here.uri)
    assert "has runs digits of namespaces local and team" in error.message
    assert _json("list", "digits", "-n", "team") == []


def test_a_name_that_is_not_there(here: StoreMaker, tmp_path: Path) -> None:
    """It is said where it was looked for, and what there is."""
    here.run("digits")
    error = _error("list", "digit", "--store", here.uri)
    assert isinstance(error, RunNotFoundError)
    assert "Did you mean digits?" in error.hint
    error = _error("list", "digit")
    assert isinstance(error, RunNotFoundError)
    assert f"no run digit in {here.uri}; and no cluster tells of it" in error.message
    (tmp_path / "odd.toml").write_text("name = 1\n")
    assert isinstance(_error("list", "odd.toml"), SpecError)


def test_a_folder_that_is_no_store_is_not_made_one(here: StoreMaker, tmp_path: Path) -> None:
    """Looking leaves nothing behind."""
    error = _error("list", "digits", "--store", tmp_path / "nowhere")
    assert "there is no store in" in error.message
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.cluster
def test_the_same_in_a_bucket(in_bucket: StoreMaker, tmp_path: Path) -> None:
    """On a real S3 server, as one types it."""
    run, place = in_bucket.run(), in_bucket.options
    run.claim()
    names = [run.save(step) for step in (100, 200, 300)]
    assert [each["step"] for each in _json("list", "digits", *place)] == [100, 200, 300]
    assert all(not each["wrong"] for each in _json("verify", "digits", "--all", *place))
    _done("pin", "digits", 100, *place)
    assert Retention(run.store, run.run, attempt=1, keep=Keep(last=1)).prune() == [names[1]]
    _done("export", "digits", "--to", tmp_path / "m.safetensors", *place)
    assert load_file(tmp_path / "m.safetensors")["weight"].unique().tolist() == [300.0]
    _done("unpin", "digits", 100, *place)
    _done("delete", "digits", 100, "--yes", *place)
    assert run.store.folders(run.run.checkpoints) == [str(names[2])]


def test_it_is_a_command(here: StoreMaker) -> None:
    """Typed in a shell; an error is one message and its exit code."""
    done = subprocess.run(
        [str(FOOTPLATE), "checkpoints", "list", "digits", "--store", "nowhere"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 13
    assert done.stderr.startswith("footplate: there is no store in")
