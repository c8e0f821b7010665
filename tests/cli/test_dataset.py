"""`footplate dataset` says what data is, whether it is still that, and what has changed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from footplate.cli._reading import ReadingBar
from footplate.cli._sizes import size, thousands
from footplate.cli.dataset import command
from footplate.data.tables import fixed_binary_column
from footplate.errors import DataError
from testbed import wait_until

_DEADLINE_S = 60


def _write(path: Path, first: int, count: int = 5) -> None:
    numbers = np.arange(first, first + count)
    field, images = fixed_binary_column("image", np.zeros((count, 2, 2), np.uint8))
    schema = pa.schema([field, pa.field("number", pa.int64())])
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_arrays([images, pa.array(numbers)], schema=schema)
    pq.write_table(table, path, row_group_size=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of five rows, without a manifest."""
    for name, first in (("a.parquet", 0), ("more/b.parquet", 5)):
        _write(tmp_path / "numbers" / name, first)
    return tmp_path / "numbers"


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def _json(*arguments: object, exit_code: int = 0) -> dict[str, Any]:
    result = _run(*arguments, "-o", "json")
    assert result.exit_code == exit_code, result.output
    values: dict[str, Any] = json.loads(result.stdout)
    return values


def _created(folder: Path) -> str:
    result = _run("create", folder)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_create_prints_what_a_spec_names(folder: Path) -> None:
    """Standard output is the manifest's URI alone; what it is stands on standard error."""
    result = _run("create", folder)

    (file,) = folder.glob("*.json")
    assert result.stdout == f"{file}\n"
    assert file.name.startswith("numbers-")
    assert "(2 files, 4 row groups, 10 rows, " in result.stderr
    assert "is new" in result.stderr


def test_create_takes_a_path_as_it_is_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is of the working folder, and a slash at its end changes nothing."""
    monkeypatch.chdir(folder.parent)

    assert _run("create", "numbers/").stdout == f"{_created(folder)}\n"


def test_create_again_says_that_nothing_changed(folder: Path) -> None:
    """The same data has the same version; other data tells which versions are there."""
    first = _created(folder)
    assert "is unchanged, it was described before" in _run("create", folder).stderr
    _write(folder / "c.parquet", 10)

    facts = _json("create", folder)

    assert facts["new"]
    assert facts["earlier"] == [Path(first).name]
    assert (facts["rows"], facts["files"], facts["row_groups"]) == (15, 3, 6)


def test_create_names_what_is_no_data(folder: Path) -> None:
    """What cannot be described ends as a data failure that names the file."""
    (folder / "broken.parquet").write_bytes(b"no data")

    error = _run("create", folder).exception

    assert isinstance(error, DataError)
    assert str(error).startswith(f"{folder}/broken.parquet is no readable Parquet file")


def test_show_tells_what_is_in_it(folder: Path) -> None:
    """Rows, sizes, row groups and every column, for people and for scripts."""
    uri = _created(folder)

    text = _run("show", uri).stdout
    facts = _json("show", uri)

    assert "4, of 2 to 3 rows, median 2" in text
    assert [line.split() for line in text.splitlines()[-2:]] == [
        ["image", "fixed_size_binary[4]", "uint8", "2x2", "0", "-", "-"],
        ["number", "int64", "-", "-", "0", "0", "9"],
    ]
    assert facts["row_groups"] == {"count": 4, "least": 2, "median": 2, "most": 3}
    assert [column["name"] for column in facts["columns"]] == ["image", "number"]
    assert [file["path"] for file in facts["files"]] == ["a.parquet", "more/b.parquet"]


def test_verify_names_what_differs(folder: Path) -> None:
    """Quickly what sizes and footers tell, in full every byte; exit code 12 if anything."""
    uri = _created(folder)
    assert "2 files as described (sizes and footers" in _run("verify", uri).stdout
    assert "2 files as described (every byte)" in _run("verify", uri, "--full").stdout
    content = bytearray((folder / "a.parquet").read_bytes())
    content[20] ^= 1
    (folder / "a.parquet").write_bytes(content)

    assert _json("verify", uri)["differences"] == []
    (found,) = _json("verify", uri, "--full", exit_code=12)["differences"]
    error = _run("verify", uri, "--full").exception

    assert (found["path"], found["row_group"], found["column"]) == ("a.parquet", 0, "image")
    assert isinstance(error, DataError)
    assert f"row group 0 of {folder}/a.parquet: column 'image' has another content" in str(error)


def test_diff_answers_like_diff(folder: Path) -> None:
    """Exit code 0 and no line for the same data, 1 and what differs for other data."""
    before = _created(folder)
    same = _run("diff", before, before)
    assert (same.exit_code, same.stdout) == (0, "")
    _write(folder / "a.parquet", 0, count=6)
    (folder / "more/b.parquet").rename(folder / "more/c.parquet")
    after = _created(folder)

    other = _run("diff", before, after)
    facts = _json("diff", before, after, exit_code=1)

    assert other.exit_code == 1
    lines = other.stdout.splitlines()
    assert lines[0] == "11 rows, was 10 (+1)"
    assert [line[:2] for line in lines[1:]] == ["- ", "+ ", "~ "]
    assert "a.parquet: 6 rows, was 5" in lines[3]
    assert "1 of 2 row groups differ" in lines[3]
    assert (facts["added"], facts["removed"]) == (["more/c.parquet"], ["more/b.parquet"])
    assert facts["changed"][0]["row_groups"] == [1]


@pytest.mark.parametrize("subcommand", ["show", "verify", "diff"])
def test_what_is_no_manifest_is_a_data_failure(folder: Path, subcommand: str) -> None:
    """A folder in place of a manifest is answered with how to make one, not with a difference."""
    arguments = [folder / "none.json"] * (2 if subcommand == "diff" else 1)

    error = _run(subcommand, *arguments).exception

    assert isinstance(error, DataError)
    assert f"footplate dataset create {folder}" in str(error)


def _footplate(*arguments: object) -> subprocess.Popen[str]:
    code = "import sys; from footplate.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def many_files(tmp_path: Path) -> Path:
    """Some hundred MB to read that take 16 MB of disk."""
    folder = tmp_path / "many"
    folder.mkdir()
    pq.write_table(pa.table({"zeros": np.zeros(2 << 20)}), folder / "0.parquet", compression=None,
                   use_dictionary=False)  # fmt: skip
    for number in range(1, 60):
        os.link(folder / "0.parquet", folder / f"{number}.parquet")
    return folder


def test_interrupted_it_goes_on(many_files: Path) -> None:
    """After Ctrl-C the exit code is 130, there is no manifest, and the same command goes on."""
    with _footplate("dataset", "create", many_files) as process:
        reading = psutil.Process(process.pid)
        wait_until(
            lambda: reading.io_counters().read_chars > 400 << 20,
            _DEADLINE_S,
            "it has read a part",
            every_s=0.01,
        )
        process.send_signal(signal.SIGINT)
        output, told = process.communicate(timeout=_DEADLINE_S)
    assert (process.returncode, output) == (130, "")
    assert "the same command goes on" in told
    assert "Traceback" not in told
    assert not list(many_files.glob("*.json"))

    facts = _json("create", many_files)

    assert facts["known_files"] > 0
    assert facts["files"] == 60


class _Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_elsewhere_than_in_a_terminal_a_line_now_and_then() -> None:
    """A log gets a line every ten seconds, with the time left, not one for every block."""
    told, clock = io.StringIO(), _Clock()
    with ReadingBar("reading", console=Console(file=told, width=200), clock=clock) as bar:
        bar.started(4, 4 << 20)
        for _ in range(30):
            clock.now += 1
            bar.read(1 << 16)
        bar.finished("a")

    assert told.getvalue().splitlines() == [
        "reading 640.0 KiB of 4.0 MiB, 0/4 files, 54s left",
        "reading 1.2 MiB of 4.0 MiB, 0/4 files, 44s left",
        "reading 1.9 MiB of 4.0 MiB, 0/4 files, 34s left",
    ]


def test_in_a_terminal_a_bar() -> None:
    """Where nothing is read but footers, files are what is counted."""
    told = io.StringIO()
    console = Console(file=told, width=100, force_terminal=True, legacy_windows=False)
    with ReadingBar("verifying", console=console) as bar:
        bar.started(2, 0)
        bar.finished("a")
        bar.finished("b")

    assert "2/2 files" in told.getvalue()


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"),
     ((1 << 20) - 1, "1.0 MiB"), (3 << 39, "1.5 TiB"), (5 << 50, "5,120.0 TiB")],
)  # fmt: skip
def test_sizes_are_read_at_a_glance(count: int, expected: str) -> None:
    """Three or four digits and a unit, whatever the size."""
    assert size(count) == expected


def test_counts_have_their_plural() -> None:
    """One is one, and large numbers have separators."""
    assert [thousands(1, "row"), thousands(12345, "row")] == ["1 row", "12,345 rows"]
