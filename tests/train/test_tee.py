"""What is printed arrives in the store, and nothing is held up by it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from footplate.store import RunPaths, Store, segments

_RUN = RunPaths(namespace="team", name="toy", uid="uid")

# Prints at all levels, as a driver, its libraries and its children do.
_PROGRAM = """
import os, subprocess, sys
from footplate.store import RunPaths, Store
from footplate.train.tee import OutputTee

store = Store(sys.argv[1])
run = RunPaths(namespace="team", name="toy", uid="uid")
container = sys.argv[2] if len(sys.argv) > 2 else None
tee = OutputTee(store, run, 1, container=container)
"""


def _log(folder: Path) -> str:
    """All of the attempt's log."""
    return "".join(text for _, text in segments(Store(str(folder)), _RUN, 1))


def _program(folder: Path, body: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM + body, str(folder), *arguments],
        capture_output=True,
        timeout=60,
    )


def test_output_goes_on_where_it_went_and_is_kept(tmp_path: Path) -> None:
    """Python's own output, that of the operating system's level and that of children."""
    done = _program(
        tmp_path,
        """
print("from Python")
print("an error", file=sys.stderr)
os.write(1, b"from below\\n")
subprocess.run(["echo", "from a child"], check=True)
print("no end of the line", end="")
tee.close()
print("after it")
""",
    )
    assert done.returncode == 0, done.stderr
    text = _log(tmp_path)
    said = ["from Python", "an error", "from below", "from a child", "no end of the line"]
    assert text.splitlines() == said
    assert done.stdout.decode() == f"{text}after it\n"


def test_a_long_log_comes_in_segments(tmp_path: Path) -> None:
    """Each is bounded and ends with a line."""
    done = _program(tmp_path, "for n in range(60_000): print(n, 'x' * 20)\ntee.close()")
    assert done.returncode == 0, done.stderr
    store = Store(str(tmp_path))
    objects = store.objects(_RUN.log_segments(1))
    assert len(objects) >= 5
    assert all(found.size <= 256 * 1024 for found in objects)
    assert all(store.get(found.path).endswith(b"\n") for found in objects)
    assert _log(tmp_path) == "".join(f"{n} {'x' * 20}\n" for n in range(60_000))


def test_a_line_without_end_is_cut_between_characters(tmp_path: Path) -> None:
    """Every segment is a text by itself."""
    said = "'1' + chr(9731) * 200_000"  # three bytes each
    done = _program(tmp_path, f"sys.stdout.buffer.write(({said}).encode())\ntee.close()")
    assert done.returncode == 0, done.stderr
    assert len(list(segments(Store(str(tmp_path)), _RUN, 1))) >= 3
    assert _log(tmp_path) == "1" + chr(9731) * 200_000


def test_lines_are_seen_while_the_program_runs(tmp_path: Path) -> None:
    """Two seconds or so after they were printed, also if it is killed afterwards."""
    with subprocess.Popen(
        [sys.executable, "-c", f"{_PROGRAM}print('early')\ninput()", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + 30
        while _log(tmp_path) != "early\n":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()


def test_a_program_that_replaces_itself_keeps_its_output(tmp_path: Path) -> None:
    """The next attempt of a driver prints to where the first one did."""
    done = _program(
        tmp_path,
        """
print("before")
tee.close()
os.execv(sys.executable, [sys.executable, "-c", "print('behind')"])
""",
    )
    assert done.stdout == b"before\nbehind\n"
    assert _log(tmp_path) == "before\n"


def test_a_store_that_is_away_holds_up_nothing(tmp_path: Path) -> None:
    """Output is printed at once; of what waits too long the log says that it is missing."""
    folder = tmp_path / "runs"
    done = _program(
        folder,
        """
os.rmdir(sys.argv[1])
open(sys.argv[1], "w").close()  # nothing can be written there
for n in range(12): print("y" * 1_000_000)
os.write(2, b"printed\\n")
os.remove(sys.argv[1])
tee.close()
""",
    )
    assert done.returncode == 0, done.stderr
    text = _log(folder)
    assert "bytes are missing here: the store did not take them\n" in text
    assert 7_000_000 < len(text) < 9_000_000
    assert len(done.stdout) > 12_000_000


@pytest.mark.parametrize("reads", [True, False])
def test_the_container_log_has_it_too_and_never_blocks(tmp_path: Path, reads: bool) -> None:
    """What collects container logs sees every line; if it does not read, it misses some."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    collected = bytearray()
    ended = threading.Event()

    def collect() -> None:
        while not ended.is_set():
            try:
                collected.extend(os.read(reading, 65536))
            except BlockingIOError:
                ended.wait(0.01)

    thread = threading.Thread(target=collect)
    if reads:
        thread.start()
    body = "for n in range(2): print('line', n)\n" if reads else "print('z' * 1_000_000)\n"
    done = _program(tmp_path / "runs", f"{body}tee.close()", str(pipe))
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 10
    while reads and bytes(collected) != b"line 0\nline 1\n":
        assert time.monotonic() < deadline, collected
        time.sleep(0.01)
    ended.set()
    if reads:
        thread.join()
    os.close(reading)
    assert len(_log(tmp_path / "runs")) == len(done.stdout)
