"""``footplate render``, as it is typed."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from footplate.data.manifest import DataFile, DataManifest, RowGroup, SchemaField
from footplate.render import to_yaml
from footplate.runs.submission import prepare
from footplate.spec import load

IN_A_CLUSTER = [
    "--set=image=example.com/digits:1",
    "--set=store.uri=s3://bucket/runs",
    "--set=tracking.uri=https://mlflow.example.com",
]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec file whose code and data are there."""
    content = b"rows"
    (tmp_path / "a.parquet").write_bytes(content)
    manifest = DataManifest(
        name="digits",
        files=(
            DataFile(
                path="a.parquet",
                size=len(content),
                row_groups=(
                    RowGroup(rows=100, offsets=(4,), sizes=(0,), digests=("",), values=(None,)),
                ),
                sha256=hashlib.sha256(content).hexdigest(),
            ),
        ),
        fields=(SchemaField(name="x", type="float"),),
    )
    (tmp_path / f"train-{manifest.version}.json").write_bytes(manifest.to_json())
    (tmp_path / "digits.py").write_text("def train(ctx): ...\n")
    file = tmp_path / "digits.toml"
    file.write_text(
        f"""\
name = "digits"
entrypoint = "digits:train"
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


def test_prints_the_objects_as_yaml(spec: Path) -> None:
    """What is printed is what is sent, the code that travels with it included."""
    done = footplate("render", spec)
    assert done.returncode == 0
    submission = prepare(load(spec), namespace="default")
    assert done.stdout == to_yaml(submission.objects())
    assert submission.archive is not None
    rayjob = next(yaml.safe_load_all(done.stdout))
    assert rayjob["metadata"]["annotations"]["footplate.dev/code-digest"] == (
        submission.archive.digest
    )
    assert [each["kind"] for each in yaml.safe_load_all(done.stdout)] == ["RayJob", "ConfigMap"]


def test_prints_one_list_as_json(spec: Path) -> None:
    """Both forms say the same, and kubectl reads both."""
    listed = json.loads(footplate("render", spec, "-o", "json").stdout)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert listed["items"] == list(yaml.safe_load_all(footplate("render", spec).stdout))


def test_overrides_and_the_namespace_reach_the_objects(spec: Path) -> None:
    """--set and --namespace are what the cluster would get."""
    done = footplate("render", spec, "-n", "team", "--set", "workers=3", "--set", "seed=4")
    rayjob, identity = yaml.safe_load_all(done.stdout)
    assert {each["metadata"]["namespace"] for each in (rayjob, identity)} == {"team"}
    assert rayjob["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] == 3
    assert json.loads(identity["data"]["job.json"])["spec"]["seed"] == 4


def test_notes_say_what_will_not_work_in_pods(spec: Path) -> None:
    """A laptop's spec renders; what only this machine can reach is noted apart from the output."""
    notes = footplate("render", spec).stderr.splitlines()
    assert [note.split(" is ")[0] for note in notes] == [
        "note: cannot be submitted: store.uri: '.footplate/runs'",
        "note: image",
        "note: tracking.uri",
    ]


def test_a_spec_for_a_cluster_has_no_notes(spec: Path) -> None:
    """Whoever did everything right hears nothing."""
    assert footplate("render", spec, *IN_A_CLUSTER).stderr == ""


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ("store.endpoint=http://localhost:9000", "store.endpoint: 'http://localhost:9000' is this"),
        ("store.endpoint=http://127.0.0.1", "is this machine; in a pod it is the pod"),
        ("store.uri=file:///runs", "store.uri: 'file:///runs' is a folder of this machine"),
        ("init_from.uri=weights", "init_from.uri: 'weights' is a folder of this machine"),
        ("tracking.uri=http://localhost:5000", "tracking.uri: 'http://localhost:5000' is this"),
        ("tracking.uri=sqlite:///mlflow.db", "is a file of this machine; name an MLflow server"),
        ("tracking.uri=mlruns", "is a file of this machine; name an MLflow server"),
    ],
)
def test_each_thing_of_this_machine_is_noted(spec: Path, change: str, note: str) -> None:
    """One note for one thing, and it names the key."""
    done = footplate("render", spec, *IN_A_CLUSTER, "--set", change)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("note: cannot be submitted: ")
    assert note in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "workers.cpus=0.5"), "workers.cpus: '0.5' is not whole"),
        (("--set", "colour=red"), "colour: unknown key"),
        (("--set", "nonsense"), "'nonsense' is not of the form key=value"),
        (("--set", "runtime=torch@9"), "there is no runtime 'torch@9'; did you mean 'torch@1'?"),
        (("-n", "My Team"), "namespace: 'My Team' is no name"),
        (("-o", "xml"), "'xml' is not one of"),
    ],
)
def test_a_mistake_is_a_message_and_exit_code_2(
    spec: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Nothing half-right is printed."""
    done = footplate("render", spec, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("file", "message"),
    [("digits.py", "entrypoint"), ("train-*.json", "data.train"), ("a.parquet", "a.parquet")],
)
def test_what_the_spec_names_must_be_there(spec: Path, file: str, message: str) -> None:
    """What could not be sent is not printed as if it could."""
    next(spec.parent.glob(file)).unlink()
    done = footplate("render", spec)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_exit_code_2(tmp_path: Path) -> None:
    """A wrong file name is a wrong command."""
    done = footplate("render", tmp_path / "none.toml")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


@pytest.mark.parametrize("command", [["--help"], ["render"], ["validate"]])
def test_commands_stay_quick(spec: Path, command: list[str]) -> None:
    """Nothing slow to import is imported: that is what the time of a command consists of."""
    arguments = command if command == ["--help"] else [*command, str(spec)]
    code = f"""
import sys
sys.argv = ["footplate", *{arguments!r}]
from footplate.cli import main
try:
    main()
finally:
    slow = {{"ray", "torch", "mlflow", "pyarrow", "numpy", "pandas", "kubernetes"}}
    print("imported:", slow & sys.modules.keys(), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "imported: set()"
