"""`footplate store` says what is in a store and what it takes, and removes what nobody needs."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from footplate.checkpoints import committed, pin, read_pins
from footplate.cli._bytes_bar import BytesBar, ListingBar
from footplate.cli.store import command
from footplate.errors import StoreError
from footplate.runs.garbage import collect_garbage
from footplate.runs.lock import lock_file
from footplate.store import CheckpointName, ObjectInfo, RunRecord, code_archive_path, to_json

if TYPE_CHECKING:
    from tests.cli.conftest import StoredRunMaker, StoreMaker

_DAY_S = 86400.0


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def _done(*arguments: object) -> Result:
    result = _run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def _json(*arguments: object) -> Any:
    return json.loads(_done(*arguments, "-o", "json").stdout)


def _with_orphans(run: StoredRunMaker) -> CheckpointName:
    """Two attempts, of which the first has left a dead end and the second a half."""
    run.claim(1)
    start = run.save(100)
    run.save(200)
    run.claim(2, starts_from=start)
    newest = run.save(150, 2)
    run.save(250, 2, committed=False)
    return newest


def _age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_every_run_is_listed(here: StoreMaker) -> None:
    """Where each stands as far as the store tells, what it has saved and what it takes."""
    ended = here.run("ended", age_s=7500.0)
    _with_orphans(ended)
    ended.end("succeeded", attempt=2)
    stopped = here.run("stopped", age_s=7400.0)
    stopped.claim()
    stopped.end("interrupted")
    here.run("killed", age_s=7300.0).claim()
    busy = here.run("busy", namespace="team", age_s=7200.0)
    busy.claim()
    busy.report(5.0)
    silent = here.run("silent", namespace="team", age_s=7100.0)
    silent.claim()
    silent.report(3000.0)
    rows = {row[1]: row for row in map(str.split, _done("ls").stdout.splitlines()[1:])}
    assert list(rows) == ["silent", "busy", "killed", "stopped", "ended"]
    assert [rows[name][2] for name in rows] == [
        "silent",
        "running",
        "killed",
        "stopped",
        "succeeded",
    ]
    assert rows["ended"][4:6] == ["150", "2"]
    facts = {each["name"]: each for each in _json("ls")}
    assert [name for name in facts if facts[name]["is_over"]] == ["killed", "stopped", "ended"]
    assert facts["silent"]["why"] == "last heard of 50m00s ago"
    assert facts["ended"]["checkpoints"] == ["step-00000100.a0001", "step-00000150.a0002"]
    assert facts["ended"]["bytes"]["checkpoints_orphaned"] == 2


def test_one_that_cannot_be_read_does_not_hide_the_others(here: StoreMaker) -> None:
    """It is listed with the reason, and nothing of it is removed."""
    odd, well = here.run("odd"), here.run("well")
    here.store.put(odd.run.record, b"{")
    here.store.put(code_archive_path("sha256:abc"), b"zip")
    _age(Path(here.uri, "code", "abc.zip"), 60 * _DAY_S)
    assert [each["name"] for each in _json("ls")] == ["well", "odd"]
    assert "is no RunRecord" in _done("ls").stdout
    assert "is no RunRecord" in _done("gc").stderr
    assert "may need it, which can't be read" in _done("gc").stderr
    assert here.store.size(code_archive_path("sha256:abc")) is not None
    assert well.store.size(well.run.record) is not None


def test_an_empty_store(here: StoreMaker) -> None:
    """There is nothing to say, and one that is not there is an error."""
    assert f"no runs in {here.uri}" in _done("ls").stderr
    assert _json("du")["total"] == 0
    assert isinstance(_run("ls", "--store", "nowhere").exception, StoreError)


def test_all_bytes_are_accounted_for(here: StoreMaker) -> None:
    """To the last one, each in its place; on this machine also what was half-written."""
    run = here.run()
    newest = _with_orphans(run)
    pin(run.store, run.run, "odd", CheckpointName(200, 1), by="ada", time=1.0)
    half = Path(here.uri, run.run.checkpoint(newest), "rank-00000.bin#1")
    half.write_bytes(b"half")
    for path, count in [
        (run.run.log(1), 1000),
        (run.run.attempt(1).metric_segment(1), 2000),
        (f"{run.run.attempt(1).ray}/trainer/state", 3000),
        (code_archive_path("sha256:abc"), 4000),
        ("datasets/numbers/a.parquet", 5000),
        ("local/half-made/uid-9/logs/attempt-0001.log", 6000),
    ]:
        here.store.put(path, bytes(count))
    space = _json("du")
    files = [path.stat().st_size for path in Path(here.uri).rglob("*") if path.is_file()]
    assert space["total"] == sum(files)
    expected = {"logs": 1000, "metrics": 2000, "ray": 3000, "code": 4000, "datasets": 5000}
    assert {part: space[part] for part in expected} == expected
    assert space["other"] == 6000
    of_run = _json("du", "digits")
    assert of_run["total"] == space["total"] - 15000
    checkpoints = {each.name: _size(each) for each in Path(here.uri, run.run.checkpoints).iterdir()}
    assert of_run["checkpoints"] == (
        checkpoints["step-00000100.a0001"] + checkpoints["step-00000150.a0002"]
    )
    assert of_run["pinned"] == checkpoints["step-00000200.a0001"]
    assert of_run["orphans"] == checkpoints["step-00000250.a0002"]
    told = _done("du").stdout
    assert "datasets     4.9 KiB" in told
    assert told.splitlines()[-1].startswith("total")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_garbage_of_runs_that_are_over_goes(here: StoreMaker) -> None:
    """What counts stays, and so does a pin; twice is no error."""
    run = here.run()
    newest = _with_orphans(run)
    run.end("failed", attempt=2)
    pin(run.store, run.run, "odd", CheckpointName(200, 1), by="ada", time=1.0)
    kept = [CheckpointName(100, 1), newest, CheckpointName(200, 1)]
    dry = _json("gc", "--dry-run")
    assert [each["path"] for each in dry["found"]] == [run.run.checkpoint(CheckpointName(250, 2))]
    assert dry["found"][0]["removed"]
    assert "would remove local/digits step-00000250.a0002" in _done("gc", "--dry-run").stdout
    assert len(run.store.folders(run.run.checkpoints)) == 5
    told = _done("gc").stdout
    assert "removed local/digits step-00000250.a0002" in told
    assert re.search(r"^freed [\d.]+ (B|KiB)$", told, re.MULTILINE)
    assert committed(run.store, run.run) == kept
    assert sorted(run.store.folders(run.run.checkpoints)) == sorted(["pins", *map(str, kept)])
    assert _json("gc")["found"] == []
    assert _done("gc").stdout == "there is nothing to remove\n"


def test_a_live_run_is_left_alone(here: StoreMaker) -> None:
    """With the reason; also one that was not heard of for less than a day."""
    makers = [here.run(name, namespace="team") for name in ("busy", "silent", "between", "old")]
    for run, age_s in zip(makers, (5.0, 3600.0, 0.0, 2 * _DAY_S), strict=True):
        _with_orphans(run)
        run.report(age_s, attempt=2)
    makers[2].end("failed", attempt=2, goes_on=True)
    # The claim of the last one is no older than its folder here, so it is written anew.
    claim = makers[3].run.attempt(2).claim
    old = json.loads(makers[3].store.get(claim)) | {"claimed": time.time() - 3 * _DAY_S}
    makers[3].store.put(claim, json.dumps(old).encode())
    record = json.loads(makers[3].store.get(makers[3].run.record))
    record["created"] = time.time() - 4 * _DAY_S
    makers[3].store.put(makers[3].run.record, json.dumps(record).encode())
    done = _done("gc")
    assert "left alone: team/busy uid-1" in done.stderr
    assert "it is running, heard of" in done.stderr
    assert "it is silent, last heard of 1h00m ago" in done.stderr
    assert "left alone: team/between uid-1" in done.stderr
    assert [len(run.store.folders(run.run.checkpoints)) for run in makers] == [4, 4, 4, 2]


def test_a_run_that_trains_here_is_left_alone(here: StoreMaker) -> None:
    """A process holds its lock, whatever its records say."""
    run = here.run()
    _with_orphans(run)
    path = lock_file(run.store, "local", "digits")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(os.getpid()))
        file.flush()
        assert "a process here works on it" in _done("gc").stderr
        assert "running" in _done("ls").stdout
        run.end("interrupted", attempt=2)
        assert f"digits is being worked on by process {os.getpid()}" in _done("gc").stderr
    assert len(run.store.folders(run.run.checkpoints)) == 4
    _done("gc")
    assert len(run.store.folders(run.run.checkpoints)) == 2


def test_code_goes_once_it_is_old_and_no_run_uses_it(here: StoreMaker) -> None:
    """A job in a queue is not in the store yet: its code must wait for it."""
    record = RunRecord(
        uid="uid-1",
        namespace="team",
        name="digits",
        created=1.0,
        spec={},
        code={"archive": "sha256:used"},
    )
    here.store.put(record.paths.record, to_json(record))
    for name in ("used", "waiting", "unused"):
        here.store.put(code_archive_path(f"sha256:{name}"), b"zip")
        if name != "waiting":
            _age(Path(here.uri, "code", f"{name}.zip"), 40 * _DAY_S)
    told = _done("gc", "--dry-run")
    assert "would remove code unused (3 B)" in told.stdout
    assert "left alone: 1 archive of code (3 B): a job that still waits in a queue" in told.stderr
    found = {each["path"]: each["removed"] for each in _json("gc")["found"]}
    assert found == {"code/unused.zip": True, "code/waiting.zip": False}
    assert sorted(path.name for path in Path(here.uri, "code").iterdir()) == [
        "used.zip",
        "waiting.zip",
    ]
    assert [each["path"] for each in _json("gc", "--code-age", 0)["found"]] == ["code/waiting.zip"]
    assert [path.name for path in Path(here.uri, "code").iterdir()] == ["used.zip"]


def test_code_that_is_written_again_meanwhile_stays(here: StoreMaker) -> None:
    """Whoever submits a job writes its code anew, before the run is in the store."""
    for name in ("one", "two"):
        here.store.put(code_archive_path(f"sha256:{name}"), b"zip")
        _age(Path(here.uri, "code", f"{name}.zip"), 40 * _DAY_S)
    removing = collect_garbage(here.store)
    assert next(removing).path == "code/one.zip"
    here.store.put(code_archive_path("sha256:two"), b"zip")
    assert [(each.path, each.why_left is None) for each in removing] == [("code/two.zip", False)]
    assert here.store.size("code/two.zip") is not None


def test_trouble_with_a_run_does_not_stop_the_rest(here: StoreMaker) -> None:
    """It is left with the reason."""
    runs = [here.run(name) for name in ("odd", "well")]
    for run in runs:
        _with_orphans(run)
        run.end("failed", attempt=2)
    here.store.put(runs[0].run.pin("broken"), b"{")
    done = _done("gc")
    assert "left alone: local/odd uid-1 (0 B):" in done.stderr
    assert "is no Pin" in done.stderr
    assert [len(run.store.folders(run.run.checkpoints)) for run in runs] == [5, 2]


def test_pins_of_runs_that_need_them_no_more_go(here: StoreMaker) -> None:
    """What a run was to start from is held for it alone; pins of people stay."""
    base = here.run("base")
    orphan = _with_orphans(base)
    base.end("failed", attempt=2)
    live = here.run("live", uid="live-1", namespace="team")
    live.claim()
    live.report(5.0)
    ended = here.run("ended", uid="ended-1")
    ended.claim()
    ended.end("succeeded")
    for name in ("init-live-1", "init-ended-1", "init-nobody", "paper"):
        pin(base.store, base.run, name, CheckpointName(200, 1), by="ada", time=1.0)
    dry = [each["path"] for each in _json("gc", "--dry-run")["found"] if each["kind"] == "pin"]
    assert dry == [base.run.pin("init-ended-1"), base.run.pin("init-nobody")]
    assert "removed pin init-nobody on local/base step-00000200.a0001" in _done("gc").stdout
    assert list(read_pins(base.store, base.run)) == ["init-live-1", "paper"]
    assert CheckpointName(200, 1) in committed(base.store, base.run)
    assert orphan in committed(base.store, base.run)


def test_a_run_that_begins_meanwhile_keeps_its_pin(here: StoreMaker) -> None:
    """It was not there when runs were listed, which is no sign that it is over."""
    base = here.run("base")
    newest = _with_orphans(base)
    here.store.put(code_archive_path("sha256:abc"), b"zip")
    _age(Path(here.uri, "code", "abc.zip"), 60 * _DAY_S)
    garbage = collect_garbage(here.store)
    assert next(garbage).kind == "code"

    here.run("late", uid="late-1")
    pin(base.store, base.run, "init-late-1", newest, by="late", time=1.0)

    assert "pin" not in [found.kind for found in garbage]
    assert list(read_pins(base.store, base.run)) == ["init-late-1"]


def test_damaged_ones_stay_until_there_are_enough_others(here: StoreMaker) -> None:
    """They take space like those that count, to the last byte."""
    run = here.run(checkpoint={"keep": {"last": 2}})
    run.claim(1)
    start, damaged = run.save(100), run.save(200)
    run.store.put(f"{run.run.checkpoint(damaged)}/DAMAGED", b"bytes differ")
    run.claim(2, starts_from=start)
    run.save(300, 2)
    run.end("succeeded", attempt=2)
    assert _json("gc")["found"] == []
    assert _json("du", "digits")["total"] == _size(Path(here.uri, run.run.root))
    run.save(400, 2)
    assert [each["path"] for each in _json("gc")["found"]] == [run.run.checkpoint(damaged)]


@pytest.mark.cluster
def test_the_same_in_a_bucket(in_bucket: StoreMaker) -> None:
    """On a real S3 server."""
    run = in_bucket.run(namespace="team")
    newest = _with_orphans(run)
    run.end("succeeded", attempt=2)
    in_bucket.store.put(code_archive_path("sha256:abc"), bytes(1000))
    listed = _json("ls", *in_bucket.options)
    assert [(each["name"], each["state"]) for each in listed] == [("digits", "succeeded")]
    space = _json("du", *in_bucket.options)
    assert space["total"] == sum(info.size for info in in_bucket.store.objects(""))
    assert space["code"] == 1000
    assert space["orphans"] > 0
    assert len(_json("gc", *in_bucket.options)["found"]) == 3
    assert committed(run.store, run.run) == [CheckpointName(100, 1), newest]
    assert _json("du", "digits", *in_bucket.options)["orphans"] == 0


def test_bars_tell_in_plain_lines_without_a_terminal() -> None:
    """Now and then, not for every piece."""
    now = [0.0]
    output = io.StringIO()
    console = Console(file=output, highlight=False)
    with BytesBar("verifying", console=console, clock=lambda: now[0]) as bar:
        for done in range(1, 31):
            now[0] = float(done)
            bar(done << 20, 30 << 20)
    with ListingBar(console=console, clock=lambda: now[0]) as listing:
        for _ in range(12):
            now[0] += 1.0
            listing(ObjectInfo(path="a", size=1024))
    assert output.getvalue().splitlines() == [
        "verifying 10.0 MiB of 30.0 MiB",
        "verifying 20.0 MiB of 30.0 MiB",
        "verifying 30.0 MiB of 30.0 MiB",
        "listing: 10 objects, 10.0 KiB",
    ]
