"""Builds whose items Ray Data's tasks transform: the same whoever does what, and after any end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from footplate.data import read_manifest, verify_files
from footplate.processes import kill_session

pytestmark = pytest.mark.local

_DEADLINE_S = 120

_PREPARE = """
import functools
import time
from pathlib import Path

import numpy as np

from footplate.data import Preparation
from helping_fp import squared


def make(*, calls, items=10, bad=None):
    return Preparation(
        name="numbers",
        source=range(items),
        transform=functools.partial(samples, calls=Path(calls), bad=bad),
        rows_per_group=50,
        rows_per_file=70,
    )


def samples(item, *, calls, bad):
    (calls / f"{item}-{time.monotonic_ns()}").touch()
    while item > 3 and not (calls / "go").exists():
        time.sleep(0.01)
    if item == bad:
        raise ValueError("this one is corrupt")
    numbers = np.arange(item * 1000, item * 1000 + 97 * item)
    yield {
        "square": squared(numbers),
        "text": [f"sample {number}" for number in numbers],
        "digits": [np.full(number % 5, number, np.int32) for number in numbers],
    }


def large(*, rows=2400):
    return Preparation(
        name="large",
        source=range(0, rows, 200),
        transform=lambda first: {
            "x": np.broadcast_to(np.arange(first, first + 200)[:, None], (200, 8192))
        },
        rows_per_group=90,
        rows_per_file=1000,
    )
"""
_ROWS = 97 * sum(range(10))


@pytest.fixture
def prepare(tmp_path: Path) -> Path:
    """A prepare function in a folder of its own, with a module beside it."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "helping_fp.py").write_text("def squared(n):\n    return (n * n)[:, None]\n")
    file = folder / "prepare.py"
    file.write_text(_PREPARE)
    return file


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """Where a file tells of every call of the function."""
    folder = tmp_path / "calls"
    folder.mkdir()
    return folder


@pytest.fixture
def start(
    prepare: Path, calls: Path, tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``footplate dataset build`` in a session of its own, which ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from footplate.cli import main; main()"]
        command += ["dataset", "build", f"{prepare}:make", "--to", str(tmp_path / "data")]
        for option in (f"calls={calls}", *options):
            command += ["--option", option]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        kill_session(process.pid)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _done(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(f"data/numbers-*/.footplate-build/{pattern}.json"))


def _numbers(calls: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[0]) for path in calls.iterdir() if "-" in path.name)


_SCRIPT = """
import sys
from pathlib import Path
import ray
from footplate.data.prepare import prepare
from footplate.store import Store
file, folder, cpus = sys.argv[1:]
ray.init(address="local", num_cpus=int(cpus), include_dashboard=False, log_to_driver=False)
print(prepare(f"{file}:large", {}, Store(folder)))
ray.shutdown()
"""


def test_cpus_change_nothing(prepare: Path, tmp_path: Path) -> None:
    """One CPU and two make the same files, transformed and written in tasks, byte by byte."""
    versions = []
    for cpus in ("1", "2"):
        command = [sys.executable, "-c", _SCRIPT, str(prepare), str(tmp_path / cpus), cpus]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S)
        assert done.returncode == 0, done.stderr
        manifest, store = read_manifest(done.stdout.strip())
        verify_files(manifest, store, depth="full")
        assert [file.rows for file in manifest.files] == [1000, 1000, 400]
        versions.append(manifest.version)

    assert versions[0] == versions[1]


def test_what_was_done_is_not_done_again(
    start: Callable[..., subprocess.Popen[str]], calls: Path, tmp_path: Path
) -> None:
    """
    Interrupted, killed while it transforms and while it writes, a build goes on each time.

    What says that it is done and cannot be read, as after a loss of power, is made again.
    """
    stopped = start()
    _wait_until(lambda: len(_done(tmp_path, "*.arrow")) == 4)
    stopped.send_signal(signal.SIGINT)
    output, errors = stopped.communicate(timeout=_DEADLINE_S)
    assert (stopped.returncode, output) == (130, ""), errors
    assert "note: stopped; the same command goes on with what is missing" in errors

    killed = start()
    seen = len(_numbers(calls))
    _wait_until(lambda: len(_numbers(calls)) > seen)
    _kill(killed)
    assert len(_done(tmp_path, "*.arrow")) == 4

    (record,) = _done(tmp_path, "items-000000002-*.arrow")
    record.write_bytes(b"")
    (calls / "go").touch()
    writing = start()
    _wait_until(lambda: bool(_done(tmp_path, "*.parquet")))
    _kill(writing)
    written = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("data/*/*.parquet")}
    transformed = _numbers(calls)

    last = start()
    output, errors = last.communicate(timeout=_DEADLINE_S)
    assert last.returncode == 0, errors
    manifest, store = read_manifest(output.strip())
    verify_files(manifest, store, depth="full")
    assert manifest.rows == _ROWS
    assert _numbers(calls) == transformed
    assert [number for number in transformed if number < 4] == [0, 1, 2, 2, 3]
    place = Path(output.strip()).parent
    again = {name for name, at in written.items() if (place / name).stat().st_mtime_ns != at}
    assert len(again) <= 1  # the one whose record was not written yet
    assert {path.suffix for path in place.iterdir()} == {".json", ".parquet"}

    there = start()
    assert there.communicate(timeout=_DEADLINE_S)[0] == output
    assert _numbers(calls) == transformed


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=_DEADLINE_S)
    kill_session(process.pid)


def test_a_failing_item_is_told_as_the_users(
    start: Callable[..., subprocess.Popen[str]], prepare: Path, calls: Path, tmp_path: Path
) -> None:
    """The item and the user's own lines are told, nothing of Ray; other items are kept."""
    (calls / "go").touch()
    failed = start("bad=5")
    output, errors = failed.communicate(timeout=_DEADLINE_S)

    assert (failed.returncode, output) == (10, ""), errors
    lines = errors.splitlines()
    trace = lines.index("Traceback (most recent call last):")
    assert re.fullmatch(rf'  File "{prepare}", line \d+, in samples', lines[trace + 1])
    assert "ValueError: this one is corrupt" in lines
    assert any(line.startswith("footplate: item 5 of the source, 5, cannot") for line in lines)
    assert len(lines) < 12
    assert "ray" not in errors.lower().replace("array", "")
    assert _done(tmp_path, "items-000000003-*")


def test_nothing_but_the_build_is_told(
    start: Callable[..., subprocess.Popen[str]], calls: Path
) -> None:
    """Standard output is the manifest's URI alone, standard error our own plain lines."""
    (calls / "go").touch()
    done = start("items=5")
    output, errors = done.communicate(timeout=_DEADLINE_S)

    assert done.returncode == 0, errors
    assert Path(output.strip()).is_file()
    # A line for each of them, and another one now and then if it takes longer.
    words = [line.partition(" ")[0] for line in errors.splitlines()]
    assert [word for word, _ in groupby(words)] == ["transforming", "writing"]
