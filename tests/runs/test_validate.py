"""Checking a job together with what it names."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from footplate.data.manifest import DataFile, DataManifest, RowGroup, SchemaField
from footplate.errors import Problem, SpecError
from footplate.runs.validate import check, examine, find_problems
from footplate.spec import Job, load

SPEC = """\
name = "digits"
entrypoint = "digits:train"
limits.epochs = 3
workers = 2

[data.train]
manifest = "{manifest}"
batch_size = 8
"""

CODE = """\
from functools import partial

import torch_that_is_not_installed

raise SystemExit("user code was run")

def train(ctx): ...
def evaluate(ctx): ...

class Model:
    def inner(self): ...

alias = partial(train)
first, second = train, evaluate
annotated: object = train
only_declared: object

if True:
    def conditional(ctx): ...
try:
    from fast import imported
except ImportError:
    imported = None
with open("x") as f:
    for i in range(3):
        looped = 1
"""


def write_manifest(folder: Path, rows: int = 100) -> str:
    """A manifest of so many rows (checking reads no data file); its name."""
    group = RowGroup(rows=rows, offsets=(4, 4), sizes=(0, 0), digests=("", ""), values=(None, None))
    manifest = DataManifest(
        name="digits",
        files=(DataFile(path="a.parquet", size=1, row_groups=(group,), sha256=""),),
        fields=(SchemaField(name="image", type="binary"), SchemaField(name="label", type="int8")),
    )
    file = folder / f"train-{manifest.version}.json"
    file.write_bytes(manifest.to_json())
    return file.name


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a spec, code and a data manifest."""
    (tmp_path / "digits.py").write_text(CODE)
    (tmp_path / "job.toml").write_text(SPEC.format(manifest=write_manifest(tmp_path)))
    return tmp_path


def job(project: Path, **changes: Any) -> Job:
    """The project's job with some keys changed."""
    return load(project / "job.toml").replace(**changes)


def problem(of: Job) -> Problem:
    """The one problem of a job."""
    (found,) = find_problems(of)
    return found


def snapshot(folder: Path) -> set[str]:
    """Everything in a folder."""
    return {str(path) for path in folder.rglob("*")}


def test_a_right_job_has_no_problem_and_its_length_is_known(project: Path) -> None:
    """100 rows over 2 ranks of 8 are 6 steps an epoch."""
    findings = examine(job(project))
    assert findings.problems == ()
    assert findings.steps == 18
    assert findings.manifests["train"].rows == 100
    check(job(project), "job.toml")


def test_checking_runs_and_writes_nothing(project: Path) -> None:
    """User code is read, not imported, and no folder is made, even where the store would be."""
    before = snapshot(project)
    find_problems(job(project))
    find_problems(job(project, data={"train": {"manifest": "no/such/folder/x.json"}}))
    assert snapshot(project) == before
    assert "digits" not in sys.modules


@pytest.mark.parametrize(
    "name",
    ["train", "Model", "alias", "second", "annotated", "conditional", "imported", "looped"],
)
def test_any_way_to_bind_a_name_counts(project: Path, name: str) -> None:
    """What Python would find is not refused."""
    assert find_problems(job(project, entrypoint=f"digits:{name}")) == ()


@pytest.mark.parametrize(
    ("entrypoint", "what"),
    [
        ("digits:trian", "digits.py defines no 'trian' at its top level; did you mean 'train'?"),
        ("digits:inner", "defines no 'inner' at its top level"),
        ("digits:only_declared", "functions there: evaluate, train"),
        ("digit:train", "there is no module 'digit', neither in"),
        ("digit:train", "nor installed; did you mean 'digits'?"),
        ("zzz.yyy:f", "modules in"),
        ("digits.sub:f", "there is no module 'digits.sub'"),
        ("json.nothing:f", "there is no module 'json.nothing'"),
        ("json.decoder:JSONDecoderr", "decoder.py defines no 'JSONDecoderr'"),
    ],
)
def test_a_wrong_entrypoint_is_answered_with_the_nearest(
    project: Path, entrypoint: str, what: str
) -> None:
    """A typo in the entrypoint costs no cluster."""
    found = problem(job(project, entrypoint=entrypoint))
    assert found.where == "entrypoint"
    assert what in found.what


@pytest.mark.parametrize(
    "entrypoint", ["package:f", "package.module:g", "json:loads", "json.decoder:JSONDecoder"]
)
def test_modules_are_found_where_python_finds_them(project: Path, entrypoint: str) -> None:
    """Packages of the code folder and installed modules are entrypoints like any other."""
    (project / "package").mkdir()
    (project / "package" / "__init__.py").write_text("def f(ctx): ...")
    (project / "package" / "module.py").write_text("def g(ctx): ...")
    assert find_problems(job(project, entrypoint=entrypoint)) == ()


def test_a_module_without_source_is_not_guessed_about(project: Path) -> None:
    """What cannot be looked into is left to Python."""
    assert find_problems(job(project, entrypoint="math:anything")) == ()
    assert find_problems(job(project, entrypoint="sys:anything")) == ()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"def train(ctx:\n", "digits.py is not valid Python: '(' was never closed in line 1"),
        (b"x = 1\nif x\n    pass", "expected ':' in line 2"),
        (b"x = '\0'", "is not valid Python"),
        (b"# coding: nonsense\n", "is not valid Python"),
    ],
)
def test_code_that_does_not_compile_is_a_problem(project: Path, content: bytes, what: str) -> None:
    """A syntax error is found here, with its line, and not by eight pods."""
    (project / "digits.py").write_bytes(content)
    assert what in problem(job(project)).what


def test_odd_but_valid_code_is_none(project: Path) -> None:
    """What Python only warns about passes without a warning."""
    (project / "digits.py").write_text("pattern = '\\d'\nfrom x import *\n")
    assert find_problems(job(project)) == ()


def test_the_code_folder_must_be_there(project: Path) -> None:
    """One problem, not a second one about a module that could not be found in it."""
    found = problem(job(project, code="src"))
    assert found == Problem("code", f"{project / 'src'} is no folder")


def test_every_data_manifest_must_be_readable(project: Path) -> None:
    """Missing, changed and malformed manifests are told apart."""
    good = next(project.glob("train-*.json"))
    changed = project / f"changed-{good.stem[-16:]}.json"
    changed.write_text(good.read_text().replace("int8", "int9"))
    (project / "broken.json").write_text("{")

    def says(manifest: str) -> str:
        found = problem(job(project, data={"train": {"manifest": manifest}}))
        assert found.where == "data.train.manifest"
        return found.what

    assert "there is no data manifest at" in says("none.json")
    assert "there is no data manifest at" in says("none/none.json")
    assert "was changed after it was written" in says(changed.name)
    assert "is no data manifest" in says("broken.json")
    assert "does not end in .json" in says("digits.py")


def test_columns_must_be_in_the_data(project: Path) -> None:
    """A wrong column is answered with the nearest."""
    found = problem(job(project, data={"train": {"columns": ["image", "lable"]}}))
    assert found == Problem(
        "data.train.columns", "digits has no column 'lable'; did you mean 'label'?"
    )


def test_an_epoch_must_have_a_step(project: Path) -> None:
    """Too many ranks for the data is said before they are started."""
    found = problem(job(project, workers=13))
    assert found.where == "data.train.batch_size"
    assert "8 samples on each of 13 ranks are 104 a step, and digits has only 100" in found.what
    assert find_problems(job(project, workers=12)) == ()
    assert examine(job(project, workers=13, data={"train": {"last": "pad"}})).steps == 3


def test_there_must_be_training_data(project: Path) -> None:
    """Steps and epochs are counted on the set called train, whatever other sets there are."""
    values = job(project).to_dict()
    values["data"] = {"valid": values["data"]["train"]}
    of = Job.from_dict(values, folder=project, source="test")
    assert problem(of) == Problem("data.train", "is required: what is trained on")


def test_the_length_without_data_is_known_if_only_steps_limit_it(project: Path) -> None:
    """What an epoch would be is known only once the data has been prepared."""
    (project / "prepare.py").write_text("def make(): ...\n")
    values = job(project).to_dict()
    values["data"] = {"train": {"prepare": "prepare.py:make", "batch_size": 8}}
    for limits, steps in (({"max_steps": 5}, 5), ({"max_steps": 5, "epochs": 1}, None)):
        values["limits"] = limits
        assert examine(Job.from_dict(values, folder=project, source="test")).steps == steps


@pytest.mark.parametrize(
    ("prepare", "what"),
    [
        ("prepare.py:make", None),
        ("prepare.py:mkae", "prepare.py defines no 'mkae' at its top level; did you mean 'make'?"),
        ("perpare.py:make", "there is no file"),
    ],
)
def test_a_prepare_function_must_be_there(project: Path, prepare: str, what: str | None) -> None:
    """The function that makes the data is looked for without being run."""
    (project / "prepare.py").write_text("raise SystemExit\ndef make(): ...\n")
    values = job(project).to_dict()
    values["data"] = {"train": {"prepare": prepare, "batch_size": 8}}
    findings = examine(Job.from_dict(values, folder=project, source="test"))
    if what is None:
        assert (findings.problems, findings.steps) == ((), None)
    else:
        (found,) = findings.problems
        assert found.where == "data.train.prepare"
        assert what in found.what


@pytest.mark.parametrize(
    ("signature", "told"),
    [
        ("*, length=8", ["make() takes no 'lenght'; did you mean 'length'?"]),
        ("length", ["make() takes no 'lenght'; did you mean 'length'?"]),
        ("", ["make() takes no 'lenght'"]),
        ("lenght", []),
        ("**options", []),
    ],
)
def test_options_must_be_what_the_function_takes(
    project: Path, signature: str, told: list[str]
) -> None:
    """A typing mistake in the options is found without running anything."""
    (project / "prepare.py").write_text(f"def make({signature}): ...\n")
    values = job(project).to_dict()
    dataset = {"prepare": "prepare.py:make", "options": {"lenght": 3}, "batch_size": 8}
    values["data"] = {"train": dataset}
    found = examine(Job.from_dict(values, folder=project, source="test")).problems
    assert [problem.what for problem in found] == told
    assert all(problem.where == "data.train.options.lenght" for problem in found)


def test_the_runtime_must_be_there_and_the_job_fit_it(project: Path) -> None:
    """What cannot be rendered is a problem of the spec, too."""
    assert "did you mean 'torch@1'?" in problem(job(project, runtime="torhc@1")).what
    assert problem(job(project, workers={"memory": "4"})).where == "workers.memory"


def test_all_problems_are_raised_at_once_in_the_order_of_the_file(project: Path) -> None:
    """One run of the check is enough to repair a spec."""
    file = project / "job.toml"
    of = load(
        file,
        ["data.train.columns=['x']", "workers.cpus='1500m'", "entrypoint=digits:f", "runtime=t@9"],
    )
    with pytest.raises(SpecError) as caught:
        check(of, str(file))
    assert [(found.where, found.line) for found in caught.value.problems] == [
        ("runtime", None),
        ("entrypoint", 2),
        ("data.train.columns", 6),
    ]
    with pytest.raises(SpecError) as caught:
        check(of.replace(runtime="torch@1"), "a job made in Python")
    assert {found.line for found in caught.value.problems} == {None}
    assert "workers.cpus" in str(caught.value)


def test_a_manifest_in_a_bucket_that_cannot_be_reached_is_a_problem(project: Path) -> None:
    """A store that does not answer is named, and everything else is checked all the same."""
    with_endpoint = job(
        project,
        entrypoint="digits:f",
        store={"endpoint": "not-a-url"},
        data={"train": {"manifest": "s3://bucket/train-0123456789abcdef.json"}},
    )
    assert {found.where for found in find_problems(with_endpoint)} == {
        "data.train.manifest",
        "entrypoint",
    }


def test_the_manifest_used_here_is_what_it_says(project: Path) -> None:
    """The version in the name is the hash of the content."""
    file = next(project.glob("train-*.json"))
    assert file.stem.endswith(hashlib.sha256(file.read_bytes()).hexdigest()[:16])


def test_a_command_needs_neither_data_nor_limits(project: Path) -> None:
    """What it is that trains, and for how long, is the script's affair."""
    by_command = _by_command(project, "python", "-u", "digits.py", "--fast")
    findings = examine(by_command)
    assert (findings.problems, findings.steps) == ((), None)
    assert find_problems(_by_command(project, "bash", "-c", "train")) == ()
    assert find_problems(_by_command(project, "python", "-m", "digits")) == ()


def test_a_script_must_be_there(project: Path) -> None:
    """A slip of the pen is found before anything starts."""
    (found,) = find_problems(_by_command(project, "python", "digts.py"))
    assert found.where == "command"
    assert found.what.endswith("digts.py; did you mean 'digits.py'?")


def _by_command(project: Path, *command: str) -> Job:
    values = {"name": "digits", "command": list(command)}
    return Job.from_dict(values, folder=project, source="test")
