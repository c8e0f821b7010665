"""One process a run, whoever is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from footplate.errors import RunBusyError, StoreError, StoreFullError
from footplate.runs.lock import lock_file, locked
from footplate.store import Store

# Holds the lock until its standard input ends; with "child", a child that inherits it does.
HOLDER = """
import subprocess
import sys
from pathlib import Path
from footplate.runs.lock import locked

with locked(Path(sys.argv[1]), "digits") as lock:
    pid = 0
    if sys.argv[2] == "child":
        wait = "import sys; sys.stdin.read()"
        pid = subprocess.Popen([sys.executable, "-c", wait], pass_fds=(lock,)).pid
    print(pid, flush=True)
    sys.stdin.read()
"""

# Takes the lock again and again, and counts in a file that no two may touch at once.
CONTENDER = """
import os
import sys
from pathlib import Path
from footplate.errors import RunBusyError
from footplate.runs.lock import locked

lock, counter = Path(sys.argv[1]), Path(sys.argv[2])
turns = 0
while turns < 60:
    try:
        with locked(lock, "digits"):
            inside = os.open(counter.with_suffix(".inside"), os.O_CREAT | os.O_EXCL)
            counter.write_text(str(int(counter.read_text()) + 1))
            os.close(inside)
            os.unlink(counter.with_suffix(".inside"))
            turns += 1
    except RunBusyError:
        continue
"""


class _Clock:
    """Time that only passes while waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@contextlib.contextmanager
def _holder(path: Path, kind: str = "alone") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that holds the lock, and the child that inherited it (0 for none)."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        yield holder, int(holder.stdout.readline())


def _kill(holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A lock that was never taken."""
    return tmp_path / "local" / "digits" / "lock"


def test_a_second_process_is_refused_and_told_who_holds_it(path: Path) -> None:
    """At once, since that process is alive."""
    clock = _Clock()
    with (
        _holder(path) as (holder, _),
        pytest.raises(RunBusyError, match=f"digits is .* by process {holder.pid}") as caught,
        locked(path, "digits", clock=clock, wait=clock.wait),
    ):
        pass
    assert clock.now == 0
    assert "Wait for it" in caught.value.hint


def test_the_same_process_is_refused_too(path: Path) -> None:
    """Two threads of a notebook would write into one run."""
    with (
        locked(path, "digits"),
        pytest.raises(RunBusyError, match=str(os.getpid())),
        locked(path, "digits"),
    ):
        pass


def test_it_is_free_again_after_it_was_held(path: Path) -> None:
    """Also if what was done under it failed."""
    with pytest.raises(KeyError), locked(path, "digits"):
        raise KeyError
    with locked(path, "digits"):
        assert path.read_text() == str(os.getpid())


def test_it_is_free_once_its_holder_was_killed(path: Path) -> None:
    """The system takes it back; the text left behind means nothing."""
    clock = _Clock()
    with _holder(path) as (holder, _):
        _kill(holder)
        assert path.read_text() == str(holder.pid)
        with locked(path, "digits", clock=clock, wait=clock.wait):
            assert path.read_text() == str(os.getpid())
    assert clock.now == 0


def test_a_child_of_a_killed_holder_is_waited_for(path: Path) -> None:
    """The driver that is still noticing its parent's death must not meet a second one."""
    with _holder(path, "child") as (holder, child):
        _kill(holder)
        clock = _Clock()
        waits = []

        def wait(seconds: float) -> None:
            clock.wait(seconds)
            waits.append(seconds)
            if len(waits) == 3:
                os.kill(child, signal.SIGKILL)
            if len(waits) > 3:
                os.sched_yield()
                clock.now = 0  # killed, and as slow to go as the system is busy

        with locked(path, "digits", clock=clock, wait=wait):
            assert len(waits) >= 3


def test_patience_with_the_child_of_a_killed_holder_ends(path: Path) -> None:
    """After some time the lock's last known owner is named."""
    with _holder(path, "child") as (holder, _):
        _kill(holder)
        clock = _Clock()
        with (
            pytest.raises(RunBusyError, match=f"by process {holder.pid}"),
            locked(path, "digits", clock=clock, wait=clock.wait),
        ):
            pass
        assert 15 < clock.now < 60


@pytest.mark.parametrize("text", [b"", b"999999999", b"stale", b"\xff\xfe", b"-1", b"1\n2\n"])
def test_stale_text_in_a_free_lock_is_overwritten(path: Path, text: bytes) -> None:
    """Whoever holds the lock is in it, and nobody else."""
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    with locked(path, "digits"):
        assert path.read_text() == str(os.getpid())


def test_a_holder_that_signed_with_nonsense_is_unknown(path: Path) -> None:
    """It is refused all the same."""
    with locked(path, "digits"):
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(RunBusyError, match="process unknown"), locked(path, "digits"):
            pass


def test_racing_processes_never_hold_it_at_once(path: Path, tmp_path: Path) -> None:
    """No update of the shared file is lost, and nobody is met inside."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    contenders = [
        subprocess.Popen([sys.executable, "-c", CONTENDER, str(path), str(counter)])
        for _ in range(3)
    ]
    assert [contender.wait(60) for contender in contenders] == [0, 0, 0]
    assert counter.read_text() == "180"


def test_the_lock_of_a_folder_stands_beside_its_runs(tmp_path: Path) -> None:
    """So that every path to the same store meets the same lock."""
    store = Store(str(tmp_path))
    assert lock_file(store, "local", "digits") == tmp_path / "local" / "digits" / "lock"
    with locked(lock_file(store, "local", "digits"), "digits"):
        assert store.folders("local/digits") == []


def test_the_lock_of_a_bucket_stands_on_this_machine() -> None:
    """One for each bucket, namespace and name."""
    stores = [Store(f"s3://bucket/{prefix}") for prefix in ("a", "b", "a/")]
    files = [lock_file(store, "local", "digits") for store in stores]
    assert files[0] == files[2] != files[1]
    assert files[0] != lock_file(stores[0], "local", "other")
    assert files[0].is_absolute()


def test_a_place_that_can_hold_no_lock_is_a_store_error(tmp_path: Path, small_disk: Path) -> None:
    """Said in words, and told apart if it is full."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(StoreError, match=r"lock .*file/lock: "),
        locked(tmp_path / "file" / "lock", "digits"),
    ):
        pass
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "ballast").write_bytes(b"x" * 2**20)
    with (
        pytest.raises(StoreFullError, match=r"lock .*No space left"),
        locked(small_disk / "lock", "digits"),
    ):
        pass
