"""A folder is there while somebody uses it, and no longer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from footplate.data.shared_folder import lock_of, remove_unused, used, used_if_there

_TASK = """
import sys
from pathlib import Path
from footplate.data.shared_folder import used_if_there

folder = Path(sys.argv[1])
with used_if_there(folder) as is_there:
    (folder / "rows").write_bytes(b"rows")
    print(is_there, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that is not there yet."""
    return tmp_path / "shared"


def _is_gone(folder: Path) -> bool:
    return not folder.exists() and not lock_of(folder).exists()


@pytest.fixture
def task(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has joined who used the folder, and is now the last to use it."""
    with ExitStack() as first:
        first.enter_context(used(folder))
        folder.mkdir()
        with subprocess.Popen(
            [sys.executable, "-c", _TASK, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "True\n"
            first.close()
            yield process
            process.kill()


def test_nothing_is_made_where_nobody_uses_it(folder: Path) -> None:
    """Who only joins others could not be relied on to clean up after the last of them."""
    with used_if_there(folder) as is_there:
        assert not is_there
        assert _is_gone(folder)

    assert _is_gone(folder)


def test_what_fails_there_is_what_failed(folder: Path) -> None:
    """That nobody uses the folder is no error, and so no part of another one."""

    def fail() -> None:
        with used_if_there(folder):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    assert caught.value.__context__ is None


def test_the_last_one_removes_it(folder: Path) -> None:
    """Whoever that is."""
    with used(folder):
        folder.mkdir()
        with used(folder):
            pass
        assert folder.exists()
        with used_if_there(folder) as is_there:
            assert is_there
        assert folder.exists()

    assert _is_gone(folder)


def test_who_joined_may_be_the_last(folder: Path) -> None:
    """What a task writes after the ranks have left goes with the task."""
    with ExitStack() as ranks:
        ranks.enter_context(used(folder))
        with used_if_there(folder):
            ranks.close()
            folder.mkdir()
            remove_unused(folder)
            assert folder.exists()

    assert _is_gone(folder)


def test_another_process_counts(folder: Path, task: subprocess.Popen[str]) -> None:
    """The folder stays as long as that one needs it, which then removes it."""
    remove_unused(folder)
    assert (folder / "rows").exists()

    task.communicate("\n")
    assert task.returncode == 0
    assert _is_gone(folder)


def test_what_a_killed_process_left_can_be_removed(
    folder: Path, task: subprocess.Popen[str]
) -> None:
    """Its lock went with it, its files did not."""
    task.kill()
    task.wait()
    assert (folder / "rows").exists()

    remove_unused(folder)

    assert _is_gone(folder)
