"""``footplate validate``, as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from footplate.data.manifest import DataFile, DataManifest, RowGroup, SchemaField

RECIPES = Path(__file__).resolve().parents[2] / "rayjobs"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec whose code and data are there."""
    group = RowGroup(rows=100, offsets=(4,), sizes=(0,), digests=("",), values=(None,))
    manifest = DataManifest(
        name="digits",
        files=(DataFile(path="a.parquet", size=1, row_groups=(group,), sha256=""),),
        fields=(SchemaField(name="x", type="float"),),
    )
    (tmp_path / f"train-{manifest.version}.json").write_bytes(manifest.to_json())
    (tmp_path / "digits.py").write_text("def train(ctx): ...\n")
    file = tmp_path / "digits.toml"
    file.write_text(
        f"""\
name = "digits"
entrypoint = "digits:train"
workers = {{count = 2, ranks = 2}}
limits.epochs = 2

[data.train]
manifest = "train-{manifest.version}.json"
batch_size = 8
"""
    )
    return file


def footplate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    main = "from footplate.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", main, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_right_spec_is_one_line(spec: Path) -> None:
    """The line says what would be trained, on what, for how long."""
    done = footplate("validate", spec)
    version = next(spec.parent.glob("train-*.json")).stem[-16:]
    assert done.stdout == (
        f"digits is valid: 4 ranks (2 pods of 2); train {version}, 100 rows; 6 steps\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_numbers_of_one_are_singular(spec: Path) -> None:
    """The line reads well for small runs, too."""
    done = footplate(
        "validate", spec, "--set=workers={count=1, ranks=1}", "--set=limits.max_steps=1"
    )
    assert "1 rank (1 pod of 1)" in done.stdout
    assert done.stdout.endswith("1 step\n")


def test_fewer_workers_that_will_do_are_named(spec: Path) -> None:
    """Not all numbers between min and max share the samples of a step equally."""
    elastic = spec.read_text().replace("count = 2, ranks = 2", "min = 1, max = 4")
    spec.write_text(elastic)
    assert "4 ranks (4 pods of 1; goes on with 2 or 1)" in footplate("validate", spec).stdout
    facts = json.loads(footplate("validate", spec, "-o", "json").stdout)
    assert (facts["world_size"], facts["usable_workers"]) == (4, [1, 2, 4])


def test_data_workers_are_said_to_be_for_clusters(spec: Path) -> None:
    """Who trains here does not wait for them."""
    (spec.parent / "digits.py").write_text("def train(ctx): ...\ndef turned(columns): ...\n")
    with spec.open("a") as file:
        file.write('map = ["digits:turned"]\n')
    done = footplate("validate", spec, "--set=data_workers=3")
    assert "4 ranks (2 pods of 2); 3 data workers (in a cluster; here none); " in done.stdout


def test_all_problems_and_exit_code_2(spec: Path) -> None:
    """Every problem has its line; problems of the file come first and alone."""
    done = footplate("validate", spec, "--set=entrypoint=digits:trian", "--set=workers.memory=4")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert lines[0] == f"footplate: {spec}: 2 problems"
    assert lines[1].startswith("  line 2: entrypoint: ")
    assert lines[1].endswith("did you mean 'train'?")
    assert lines[2].startswith("  line 3: workers.memory: '4' is 4 bytes")


def test_json_for_scripts(spec: Path) -> None:
    """A script gets the same as data, and the same exit code."""
    good = footplate("validate", spec, "-o", "json")
    assert good.returncode == 0
    facts = json.loads(good.stdout)
    assert (facts["valid"], facts["problems"]) == (True, [])
    assert facts["world_size"] >= 1
    assert set(facts) == {
        "valid",
        "problems",
        "world_size",
        "usable_workers",
        "steps",
        "data",
    }
    for change, where, line in (
        ("entrypoint=digits:f", "entrypoint", 2),
        ("seed=-1", "seed", None),
    ):
        bad = footplate("validate", spec, "-o", "json", "--set", change)
        answer = json.loads(bad.stdout)
        assert (bad.returncode, bad.stderr, answer["valid"]) == (2, "", False)
        (problem,) = answer["problems"]
        assert (problem["where"], problem["line"]) == (where, line)
        assert problem["what"]


def test_the_schema_needs_no_spec() -> None:
    """An editor's configuration can be made before the first spec."""
    done = footplate("validate", "--schema")
    assert done.returncode == 0
    schema = json.loads(done.stdout)
    assert schema["required"] == ["name"]
    assert schema["oneOf"] == [{"required": ["entrypoint", "limits"]}, {"required": ["command"]}]


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.toml")), ids=lambda file: file.stem)
def test_every_recipe_is_valid(recipe: Path) -> None:
    """What is shipped as an example can be run."""
    done = footplate("validate", recipe)
    assert (done.returncode, done.stderr) == (0, "")
