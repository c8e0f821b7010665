"""``footplate dataset build``, as it is typed."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from footplate.cli._building import BuildBar
from footplate.data import read_manifest
from footplate.data.build import BuildProgress

_PREPARE = """
from footplate.data import Preparation

def make(*, rows=3, text="a"):
    return Preparation(
        name="numbers",
        source=[{"rows": rows, "text": text}],
        transform=lambda item: {
            "number": list(range(item["rows"])), "text": [item["text"]] * item["rows"]
        },
        rows_per_group=4,
    )

def broken():
    return Preparation(name="broken", source=["a", "b"], transform=fail, items_per_shard=2)

def fail(item):
    raise ValueError(f"cannot read {item}")
"""


@pytest.fixture
def prepare(tmp_path: Path) -> Path:
    """A file with prepare functions."""
    file = tmp_path / "prepare.py"
    file.write_text(_PREPARE)
    return file


def build(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, in a folder."""
    main = "from footplate.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", main, "dataset", "build", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


def test_the_manifest_is_the_result(prepare: Path, tmp_path: Path) -> None:
    """Standard output is the manifest's URI; a run of a spec beside would find the same."""
    done = build(tmp_path, "prepare.py:make")

    assert done.returncode == 0, done.stderr
    (manifest,) = tmp_path.glob(".footplate/datasets/numbers-*/numbers-*.json")
    assert done.stdout == f"{manifest}\n"
    assert done.stderr.splitlines() == [
        "transforming 0 of 1; 0 samples, 0 B",
        "writing files 0 of 3; 0 samples, 0 B",
    ]


def test_options_and_place_are_given(prepare: Path, tmp_path: Path) -> None:
    """Options are values of TOML, or texts; JSON says what was built; it is built once."""
    arguments = [f"{prepare}:make", "--option", "rows=10", "--option", "text=some words"]
    arguments += ["--to", str(tmp_path / "data"), "-o", "json"]
    done = build(tmp_path, *arguments)

    facts = json.loads(done.stdout)
    manifest, _ = read_manifest(facts["manifest"])
    assert facts == {
        "manifest": facts["manifest"],
        "name": "numbers",
        "version": manifest.version,
        "rows": 10,
        "size": manifest.size,
        "files": 1,
        "row_groups": 3,
    }
    assert manifest.fields[1].minimum == "some words"
    again = build(tmp_path, *arguments)
    assert (again.stdout, again.stderr) == (done.stdout, "")


def test_a_failure_is_the_users(prepare: Path, tmp_path: Path) -> None:
    """The function's own lines are shown, then which item it was and what to do."""
    done = build(tmp_path, f"{prepare}:broken")

    assert (done.returncode, done.stdout) == (10, "")
    lines = done.stderr.splitlines()[1:]
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{prepare}", line ')
    assert 'footplate: item 0 of the source, "a", cannot be transformed: ValueError' in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["prepare.py"], 2, "is not like path/to/prepare.py:function"),
        (["prepare.py:make", "--option", "rows"], 2, "'rows' is not like key=value"),
        (["prepare.py:make", "--option", "lenght=3"], 10, "unexpected keyword argument 'lenght'"),
        (["gone.py:make"], 12, "gone.py to prepare the data with"),
    ],
)
def test_a_wrong_command_is_told(
    prepare: Path, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    """What is wrong with the command is said in a sentence, and nothing is built."""
    done = build(tmp_path, *arguments)

    assert done.returncode == code
    assert said in done.stderr


def test_a_bar_in_a_terminal_and_lines_elsewhere() -> None:
    """A stage is told at once, then a line now and then."""
    now = [0.0]
    output = io.StringIO()
    console = Console(file=output, width=100)

    def told(stage: str, done: int) -> BuildProgress:
        return BuildProgress(stage=stage, done=done, total=9, rows=done, size=1024 * done)  # type: ignore[arg-type]

    with BuildBar(console, clock=lambda: now[0]) as bar:
        for done in range(4):
            bar.show(told("transforming", done))
            now[0] += 6.0
        bar.show(told("writing", 1))

    assert output.getvalue().splitlines() == [
        "transforming 0 of 9; 0 samples, 0 B",
        "transforming 2 of 9; 2 samples, 2.0 KiB",
        "writing files 1 of 9; 1 sample, 1.0 KiB",
    ]
    live = io.StringIO()
    with BuildBar(Console(file=live, force_terminal=True, width=100)) as bar:
        bar.show(told("writing", 3))
    assert "3/9" in live.getvalue()
